"""The demonstration as README and docs show it: its numbers, and pictures of the page that it ends with.

    python benchmarks/demonstration.py --seed 0 --out results/demo-seed-0.json --pictures docs

Pictures need Playwright and Debian's chromium; without --pictures there are none.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro
from measured_by import spelled_out

from unperturbed.experiments.demo import METHODS

RECIPES = tuple(METHODS.values())
WIDTH = 1100
SWITCHES = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
PICTURES = {
    "report-results.png": ("body", "#results-0 table.results", 15),
    "report-surfaces.png": ("#surfaces-0", "#contour-right-0", 0),
}
"""for each picture what it begins with, what it ends with, and how many pixels below that"""
DRAWN = ("#surface-left-0 canvas", "#surface-right-0 canvas", "#contour-left-0 svg", "#contour-right-0 svg")
SETTLED = 2000
"""milliseconds until surfaces, once they are there, have their last shape"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Which demonstration, and where it goes."""

    seed: int = 0
    """of split, weights, batches and attacks"""
    out: Path = Path("results/demo-seed-0.json")
    """file for the numbers"""
    pictures: Path | None = None
    """folder for pictures of the page; none if not given"""


def markdown(result: dict[str, Any]) -> str:
    """The rows of the README's table."""
    forms = dict.fromkeys(("clean", "pgd", "gridadv"), ".1f")
    forms |= dict.fromkeys(("standard_risk", "robust_risk", "adversarial_risk"), ".3f")
    cells = ([row["method"], *(format(row[key], form) for key, form in forms.items())] for row in result["rows"])
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def take_pictures(browser: Any, page: Path, folder: Path) -> None:
    """Take pictures of parts of the page as it opens."""
    tab = browser.new_page(viewport={"width": WIDTH, "height": 900})
    tab.goto(page.as_uri())
    tab.locator("#surfaces-0").scroll_into_view_if_needed()
    for drawn in DRAWN:
        tab.wait_for_selector(drawn, timeout=60_000)
    tab.wait_for_timeout(SETTLED)
    tab.evaluate("scrollTo({top: 0, behavior: 'instant'})")
    for name, (*ends, below) in PICTURES.items():
        first, last = (tab.locator(end).bounding_box() for end in ends)
        height = last["y"] + last["height"] + below - first["y"]
        clip = {"x": 0, "y": first["y"], "width": WIDTH, "height": height}
        tab.screenshot(path=folder / name, full_page=True, clip=clip)
    tab.close()


def picture(page: Path, chromium: str, folder: Path) -> None:
    """Open the page in a browser for its pictures."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=SWITCHES)
        take_pictures(browser, page, folder)
        browser.close()


def main(options: Options) -> None:
    """Run the demonstration, write JSON and take pictures."""
    chromium = shutil.which("chromium")
    if options.pictures is not None and chromium is None:
        sys.exit("pictures of the page need Chromium, and this machine has none: apt-get install chromium")
    with tempfile.TemporaryDirectory() as temporary:
        folder, out = Path(temporary), f"runs/demo-{options.seed}"
        words = ["demo", "--seed", str(options.seed), "--out", out]
        subprocess.run([sys.executable, "-m", "unperturbed", *words], cwd=folder, check=True)
        result = json.loads((folder / out / "report.json").read_text(encoding="utf-8"))
        if options.pictures is not None and chromium is not None:
            picture(folder / out / "report.html", chromium, options.pictures)
    result["recipes"] = spelled_out(RECIPES)
    options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(tyro.cli(Options))
