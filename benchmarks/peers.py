"""Libraries that ours are compared with."""

import os
import warnings
from importlib import import_module
from typing import Any


def library(name: str) -> Any:
    """The library of that name."""
    # foolbox asks for git, which none of its attacks needs; without this word it refuses to load where there is none.
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Please import `\w+` from the `scipy\.ndimage`", DeprecationWarning)
        return import_module(name)
