"""What to say of a name that is no data set, no folder of data or no run: what it is, and what was meant."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path

from .files import at_home, names_in
from .inputs import OWN_WEIGHTS
from .printing import in_shell, printable, quoted

FOLDER_VARIABLE = "UNPERTURBED_DATA"
"""names the folder that data lie in, where no option does"""
WEIGHTS = (".pt", ".pth", ".ckpt", ".bin", ".safetensors")
"""how names of files end that hold weights"""
MOST_NAMED = 3
"""runs in a folder, of which no more are named"""


def no_data_set(name: str, names: Sequence[str]) -> str:
    """What to say of a name that is none of these data sets, and no .npz file."""
    if name and looked_up(at_home(name), Path.is_dir):
        return (
            f"{printable(name)} is a folder, expected a data set: make one of the pictures in it with "
            f"unperturbed pack {in_shell(name)}, and name the .npz file that this writes"
        )
    close = get_close_matches(name.lower(), names, n=1)
    guess = f"did you mean {close[0]!r}? " if close else ""
    images = "a file of images alone goes behind --unlabeled; " if name.endswith(".npy") else ""
    known = f"choose one of {', '.join(names)} or the path of an .npz file"
    return f"unknown data set {quoted(name)}: {images}{guess}{known}"


def require_folder(folder: Path | str | None, named_by: str = "--data") -> None:
    """Refuse a file in place of the folder that data lie in, which that option or variable names."""
    if folder is not None and looked_up(at_home(folder), Path.is_file):
        own = f" (train takes a data set by --data.name {in_shell(folder)})" if str(folder).endswith(".npz") else ""
        raise NotADirectoryError(
            f"{printable(folder)} is not a folder: name the folder that the data files lie in by {named_by}{own}"
        )


def require_data_folder(folder: Path) -> None:
    """Refuse a folder of data that is not there, or is a file; the option has been looked at before any data."""
    require_folder(folder, FOLDER_VARIABLE)
    if not folder.exists():
        raise FileNotFoundError(
            f"the data folder {printable(folder)} does not exist: create it, or name another one by --data or "
            f"{FOLDER_VARIABLE}"
        )


def no_run(place: Path) -> str:
    """What to say of a place that is not the directory of a run."""
    if looked_up(place, Path.is_file):
        run = in_shell(place.parent) if looked_up(place.parent / "recipe.json", Path.is_file) else "that"
        foreign = place.suffix in WEIGHTS and run == "that"
        own = f"; for weights of your own {OWN_WEIGHTS}, and attack it by up.evaluate" if foreign else ""
        return (
            f"{printable(place)} is a file, expected the directory of a run, as unperturbed train made it: name "
            f"{run}{own}"
        )
    if runs := runs_in(place):
        some = ", ".join(in_shell(place / name) for name in runs[:MOST_NAMED])
        rest = ", …" if len(runs) > MOST_NAMED else ""
        return f"{printable(place)} holds no run (no recipe.json) but directories of runs: name one, as {some}{rest}"
    close = get_close_matches(place.name, runs_in(place.parent), n=1)
    make = f"make one with unperturbed train RECIPE --out {in_shell(place)}"
    advice = f"did you mean {in_shell(place.with_name(close[0]))}? Else {make}" if close else make
    return f"{printable(place)} holds no run (no recipe.json): {advice}"


def looked_up(place: Path, question: Callable[[Path], bool]) -> bool:
    """Whether a place is so; one that the system cannot look up, as it has too long a name, is not."""
    with suppress(OSError):
        return question(place)
    return False


def runs_in(folder: Path) -> list[str]:
    """The names of the runs in a folder; none where nobody may look into it."""
    with suppress(OSError):
        return sorted(name for name in names_in(folder) if (folder / name / "recipe.json").is_file())
    return []
