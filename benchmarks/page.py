"""The page of eight runs with a gallery of 200 images: how large it is, and how fast Chromium opens it.

    python benchmarks/page.py --data DIR

DIR holds CIFAR-10. The networks are tiny and hardly trained, which changes neither the size of the page nor what a
browser has to do. Needs Playwright and Debian's chromium; writes results/page.json.
"""

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from unperturbed.datasets import load
from unperturbed.evaluation import evaluate
from unperturbed.models import DigitsCNN
from unperturbed.page import Page, write_page
from unperturbed.recipe import plain
from unperturbed.recipes import named, usual_budget
from unperturbed.recipes.budgets import chosen
from unperturbed.runs import RunDirectory
from unperturbed.runtime import provenance, threads
from unperturbed.training import train

METHODS = ("standard", "at", "rt", "srt", "trades", "uat", "vat", "srt-fast-noise")
ATTACKS = "pgd,randadv"
IMAGES, EVALUATED, VISITS = 200, 400, 5
SWITCHES = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
TIMES = """() => new Promise((resolve) => {
    const answer = () => {
        const [visit] = performance.getEntriesByType("navigation");
        const paint = performance.getEntriesByName("first-contentful-paint")[0];
        const gallery = document.querySelector("#gallery-list-0 > li");
        const chart = document.querySelector("#accuracy-chart-0 svg");
        if (gallery && !window.pictured) window.pictured = performance.now();
        if (!visit.loadEventEnd || !gallery || !paint || !chart) return setTimeout(answer, 5);
        resolve({
            first_words: paint.startTime, loaded: visit.loadEventEnd, pictures: window.pictured,
            first_chart: performance.now(),
        });
    };
    answer();
})"""


def make_runs(folder: Path, data: Path) -> list[Path]:
    """Eight runs on CIFAR-10, trained for a moment and attacked."""
    dataset = load("cifar10", data)
    images, labels = dataset.test_images[:EVALUATED], dataset.test_labels[:EVALUATED]
    paths: list[Path] = []
    for method in METHODS:
        recipe = named(f"cifar10-pixel-{method}")
        short = replace(
            recipe,
            model=DigitsCNN(channels=(4, 8, 8), hidden=16),
            steps=40,
            batch=50,
            log_every=1,
            data=replace(recipe.data, labeled=500, validation=0, unlabeled=min(500, recipe.data.unlabeled or 500)),
        )
        path = folder / recipe.name
        model = train(short, path, folder=data, device="cpu")
        attacks = chosen(usual_budget("cifar10").attacks(), ATTACKS)
        report = evaluate(
            model, images, labels, attacks, device="cpu", recipe=plain(RunDirectory(path).read_recipe())
        )
        (path / "report.json").write_text(report.dumps())
        paths.append(path)
    return paths


def opened(file: Path) -> list[dict[str, float]]:
    """Seconds until first words, the load event, pictures and the first chart; each visit by a fresh browser."""
    from playwright.sync_api import sync_playwright

    visits: list[dict[str, float]] = []
    with sync_playwright() as driver:
        for _ in range(VISITS):
            browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=SWITCHES)
            tab = browser.new_page(viewport={"width": 1280, "height": 900})
            tab.goto(file.as_uri())
            visits.append({name: round(value / 1000, 3) for name, value in tab.evaluate(TIMES).items()})
            version = browser.version
            browser.close()
    print(f"Chromium {version}: {visits}")
    return visits


def markdown(result: dict[str, Any]) -> str:
    """What was measured, as docs/report.md says it."""
    times = ", ".join(f"{name.replace('_', ' ')} {value:.1f} s" for name, value in result["median"].items())
    return (
        f"{result['runs']} runs on CIFAR-10, {result['images']} images under {len(result['attacks'])} attacks: "
        f"{result['pictures']:,} pictures, {result['megabytes']:.1f} MB. Median of {len(result['visits'])} visits on "
        f"two cores at a load average of {result['load_average']}: {times}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with CIFAR-10")
    parser.add_argument(
        "--keep", type=Path, help="folder for runs and page, which are used again where they lie there"
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "results" / "page.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, threads(1):
        folder = options.keep or Path(temporary)
        runs = [folder / f"cifar10-pixel-{method}" for method in METHODS]
        if not all((run / "report.json").exists() for run in runs):
            runs = make_runs(folder, options.data)
        page = folder / "page.html"
        started = time.perf_counter()
        write_page(runs, page, Page(images=IMAGES), data=options.data, device="cpu")
        seconds = time.perf_counter() - started
        size = page.stat().st_size
        gallery = json.loads(page.read_text(encoding="utf-8").split('id="data">')[1].split("</script>")[0])[0][
            "gallery"
        ]
        visits = opened(page)
    result = {
        "runs": len(runs),
        "attacks": ATTACKS.split(","),
        "images": len(gallery["places"]),
        "pictures": len(gallery["places"]) * (1 + len(gallery["attacked"])),
        "megabytes": round(size / 1e6, 2),
        "seconds_to_write": round(seconds, 1),
        "visits": visits,
        "median": {name: statistics.median(visit[name] for visit in visits) for name in visits[0]},
        "load_average": round(os.getloadavg()[0], 1),
        "provenance": provenance(torch.device("cpu")),
    }
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(markdown(result))


if __name__ == "__main__":
    main()
