"""The tests that need a GPU: run, and their outcomes kept for docs/performance.md.

    python benchmarks/gpu_tests.py --out results/gpu-tests.json

Exits with the code of the tests, so that a failure is seen.
"""

import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import tyro
from card import GPU, require_gpu

from unperturbed.runtime import provenance

TESTS = Path(__file__).parents[1] / "tests" / "test_engine_gpu.py"


@dataclass(frozen=True, kw_only=True)
class Options:
    """Where the outcomes go, and how many tests run at a time."""

    out: Path = Path("results/gpu-tests.json")
    """file for the outcomes"""
    workers: int = 1
    """processes that share the tests, by pytest-xdist if there are several"""


@dataclass
class Outcomes:
    """What became of each test, and its seconds, summed over its cases."""

    cases: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])
    seconds: dict[str, float] = field(default_factory=dict[str, float])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a case; one that breaks before or behind its own part counts as failed."""
        name = report.nodeid.split("::")[1].split("[")[0]
        self.seconds[name] = self.seconds.get(name, 0.0) + report.duration
        if report.when == "call" or report.outcome != "passed":
            self.cases.setdefault(name, Counter())[report.outcome] += 1


def markdown(result: dict[str, Any]) -> str:
    """The table of docs/performance.md."""
    lines = ["| test | cases | outcome | seconds |", "|---|---:|---|---:|"]
    for name, found in result["tests"].items():
        outcome = ", ".join(
            f"{count} {word}" if len(found["cases"]) > 1 else word for word, count in found["cases"].items()
        )
        words = name.removeprefix("test_").replace("_", " ")
        lines.append(f"| {words} | {sum(found['cases'].values())} | {outcome} | {found['seconds']:.1f} |")
    return "\n".join(lines)


def main(options: Options) -> int:
    """Run, print and write JSON."""
    require_gpu()
    outcomes, started = Outcomes(), time.perf_counter()
    # Another plugin that may be there warns of several processes, and warnings are errors.
    shared = ["-n", str(options.workers), "-p", "no:benchmark"] if options.workers > 1 else []
    words = ["-q", "-p", "no:cacheprovider", "-m", "gpu", "--override-ini", "addopts=", *shared, str(TESTS)]
    code = pytest.main(words, plugins=[outcomes])
    result = {
        "provenance": provenance(GPU),
        "workers": options.workers,
        "seconds": time.perf_counter() - started,
        "tests": {
            name: {"cases": dict(cases), "seconds": outcomes.seconds[name]} for name, cases in outcomes.cases.items()
        },
    }
    print(markdown(result))
    options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return int(code)


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options)))
