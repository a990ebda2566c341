"""The figures of docs/figures.md and the numbers behind them, by the commands that the page shows.

    python benchmarks/figures.py --out results/figures.json --pictures docs/figures

All runs are trained on one core in a temporary folder. Pictures are reduced to 256 colors.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import tyro
from measured_by import spelled_out
from PIL import Image

PAGE = Path(__file__).parent.parent / "docs" / "figures.md"
RUNS, REPORTS, *DRAWN = re.findall(r"```bash\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
FIGURES = {block.split("--out figures/")[1].split()[0]: block for block in DRAWN}
RECIPES = tuple(dict.fromkeys(re.findall(r"digits-[\w.-]+", RUNS)))
COMMAND = """set -e
unperturbed() {
  local more=(--device cpu)
  if [ "$1" = curve ]; then more+=(--json); fi
  "$PYTHON" -m unperturbed "$@" "${more[@]}"
}
"""
"""what the word unperturbed means in the blocks of the page"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Where figures go."""

    out: Path = Path("results/figures.json")
    """file for the numbers"""
    pictures: Path = Path("docs/figures")
    """folder for the pictures"""


def printed(block: str, folder: Path) -> str:
    """What the commands of a block print in that folder."""
    environment = {**os.environ, "PYTHON": sys.executable, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        ["bash", "-c", COMMAND + block], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def numbers(said: str) -> object:
    """Panels of a curve, or what is said of surfaces but for their files."""
    if said.startswith("["):
        return json.loads(said)
    return [line for line in said.splitlines() if not line.startswith("written: ")]


def main(options: Options) -> None:
    """Train, attack, draw and write JSON."""
    found: dict[str, object] = {}
    options.pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for block in (RUNS, REPORTS):
            print(printed(block, folder), flush=True)
        for name, block in FIGURES.items():
            found[name] = numbers(printed(block, folder))
            with Image.open(folder / "figures" / f"{name}.png") as drawn:
                drawn.convert("RGB").quantize(256).save(options.pictures / f"{name}.png", optimize=True)
            print(f"{name} is drawn", flush=True)
    found["recipes"] = spelled_out(RECIPES)
    options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(tyro.cli(Options))
