"""Every number in README and docs stands in a committed JSON."""

import json
import re
import sys
from dataclasses import replace
from importlib import import_module
from itertools import pairwise
from math import hypot, log
from pathlib import Path
from statistics import mean, stdev

import pytest
import torch

from handmade import committed_evidence
from unperturbed import recipe as recipe_files
from unperturbed.experiments.catalog import experiments
from unperturbed.experiments.definition import Cell
from unperturbed.experiments.evidence import loads, read
from unperturbed.experiments.headline import ROWS, headline
from unperturbed.experiments.lambda_tables import at_weight
from unperturbed.experiments.measured import Measured
from unperturbed.experiments.statements import HARDLY_MORE
from unperturbed.files import numbers_in
from unperturbed.models import WideResNet
from unperturbed.recipes import RECIPES, named
from unperturbed.recipes.published import printed
from unperturbed.sameness import settings_of
from unperturbed.schedules import Piecewise

ROOT = Path(__file__).parent.parent
STATISTICS = ("digits", "digits-own-statistics")
"""files with SRT++ on digits by the statistics of its recipe, and by those of its average"""


@pytest.fixture(autouse=True)
def benchmarks_at_hand(monkeypatch):
    """What measured is imported to write its tables again."""
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])


def text_of(page):
    """A page as it is written."""
    return (ROOT / page).read_text(encoding="utf-8")


def words_of(page):
    """The words of a page, wherever its lines end."""
    return " ".join(text_of(page).split())


def result_in(file):
    """What a file of results holds."""
    return json.loads((ROOT / "results" / file).read_text(encoding="utf-8"))


def test_the_readme_shows_the_demonstration_as_it_was_measured():
    from demonstration import markdown

    readme = text_of("README.md")
    result = result_in("demo-seed-0.json")
    assert len(result["rows"]) == 7
    assert markdown(result) in readme
    (srt,) = [row for row in result["rows"] if row["method"] == "SRT, pixel-wise"]
    assert "about four of five under PGD, and hardly any under rotations" in readme
    assert srt["clean"] > 95 and 75 < srt["pgd"] < 85 and srt["gridadv"] < 5


def test_the_readme_has_the_headline_of_the_results():
    readme = text_of("README.md")
    evidence = committed_evidence()
    assert headline(evidence) in readme
    assert {each.seed for each in evidence} == {0} and "Each row of ours is a single run, with seed 0" in readme
    (fast,) = [each.report for each in evidence if (each.name, each.network) == ("cifar10-pixel-srt-fast", "own")]
    theirs = printed("Table 9", "cifar10-pixel-srt-fast")
    less = [theirs[column] - 100 * fast.accuracy(name) for column, name in (("clean", None), ("pgd", "pgd"))]
    told = "{:.2f} points below the paper's clean accuracy and {:.2f} points below its accuracy under PGD"
    assert told.format(*less) in " ".join(readme.split())


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_srt_is_above_rt_and_its_rival_in_both_scenarios(seed):
    report = result_in(f"demo-seed-{seed}.json")
    under = {row["method"]: row[row["own_attack"]] for row in report["rows"]}
    assert under["SRT, pixel-wise"] > max(under["RT, pixel-wise"], under["AT, pixel-wise"]) + 10
    assert under["SRT, spatial"] > max(under["RT, spatial"], under["Worst-of-k, spatial"]) + 10
    assert report["provenance"]["seed"] == seed


def test_all_seeds_of_the_demonstration_show_the_same_order():
    orders = []
    for seed in (0, 1, 2):
        report = result_in(f"demo-seed-{seed}.json")
        scenarios = [[row for row in report["rows"] if row["own_attack"] == attack] for attack in ("pgd", "gridadv")]
        orders.append([sorted(rows, key=lambda row: -row[row["own_attack"]]) for rows in scenarios])
    methods = [[[row["method"] for row in rows] for rows in scenarios] for scenarios in orders]
    assert methods[0] == methods[1] == methods[2]
    assert [len(rows) for rows in methods[0]] == [4, 3]


def test_the_readme_says_where_rivals_of_srt_do_better_than_in_the_paper():
    readme = words_of("README.md")
    found = Measured([each for each in committed_evidence() if each.scale == "paper"])
    more = {
        (data, method): found.figure(Cell(trial, "gridadv")).mean - printed("Table 3", trial)["gridadv"]
        for data in ("cifar10", "mnist")
        for method in ("klr", "srt")
        for trial in [f"{data}-spatial-{method}"]
    }
    assert (
        f"its rival KLR is so by more: by {more['cifar10', 'klr']:.2f} points on CIFAR-10 and "
        f"{more['mnist', 'klr']:.2f} on MNIST, SRT by {more['cifar10', 'srt']:.2f} and {more['mnist', 'srt']:.2f}."
    ) in readme
    rst, srt = (Cell(f"cifar10-pixel-{name}", "pgd") for name in ("rst", "srt-ramped-one-pass"))
    lead = found.difference(rst, srt)
    assert "On CIFAR-10 it is above SRT here" in readme and lead.points > 2 * lead.error
    assert (
        "On MNIST it is above SRT at the printed rate, and UAT, another rival, is above SRT at the authors' rate"
    ) in readme
    assert "Under AutoAttack even TRADES, which learns from the labels alone, is above SRT at the printed" in readme
    for better, worse, attack in (
        ("rst", "srt", "pgd"),
        ("uat-authors", "srt-authors", "pgd"),
        ("trades", "srt", "autoattack"),
    ):
        lead = found.difference(*(Cell(f"mnist-pixel-{name}", attack) for name in (better, worse)))
        assert lead.points > 2 * lead.error


def test_the_readme_says_how_the_rows_with_a_teacher_were_chosen():
    readme = words_of("README.md")
    better = experiments()["better"]
    found = Measured([each for each in committed_evidence() if each.scale == "paper"])
    trials = {trial.name: trial for trial in better.trials if "-shortest-" in trial.name}
    runs = {each.name: each for each in found.evidence if each.name in trials}
    (shown,) = {row.trial for row in ROWS} & runs.keys()
    assert shown == max(runs, key=lambda name: runs[name].seconds)
    assert {each.recipe.labeler for each in runs.values()} == {"teacher"}
    assert len(runs) == 4 and "is the longest of four such trainings" in readme
    goal = " reaches the accuracy of the paper's fast SRT, clean and under PGD"
    said = {each.words.removesuffix(f",{goal}"): each for each in better.statements if each.words.endswith(goal)}
    reached = [name for name in runs if said[trials[name].called].check(found).verdict == "pass"]
    assert reached == [shown] and "the only one that reaches the paper's accuracy" in readme
    stands = 100 * runs[shown].report.survivors("pgd").double()
    over, error = stands.mean().item() - printed("Table 9", "cifar10-pixel-srt-fast")["pgd"], stands.std() / 100
    assert len(stands) == 10_000 and 0 < over < error / 2
    assert f"under PGD by {over:.2f} points, well within the standard error of {error:.2f}." in readme
    teacher = named("cifar10-pixel-srt-plusplus").teacher
    assert (teacher.steps * teacher.batch / 50_000, type(teacher.model).__name__) == (
        pytest.approx(90, 0.01),
        "ResNet18",
    )
    assert "and 90 of its teacher, a ResNet-18" in readme


def test_the_page_of_results_says_how_far_apart_two_trainings_of_one_recipe_are():
    page = words_of("docs/results.md")
    pairs: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
        ("cifar10-pixel-standard-resnet18", "standard", (), "clean"),
        ("cifar10-pixel-srt-plusplus-selected-three-steps-60", "srt-plusplus", ("pgd",), "under PGD"),
    )
    for run, file, attack, words in pairs:
        again_at = f"results/{file}-once-more.json"
        first, again = read(ROOT / "results/reproduce/paper" / f"{run}-seed-0.json"), read(ROOT / again_at)
        assert first.recipe == again.recipe and first.trained_by == again.trained_by
        apart = 100 * (first.report.survivors(*attack).double() - again.report.survivors(*attack).double())
        ends = [f"{100 * each.report.accuracy(*attack):.2f}" for each in (first, again)]
        off = f"{apart.mean().abs():.2f} ± {apart.std() / len(apart) ** 0.5:.2f} apart"
        assert f"came to {ends[0]} and {ends[1]} {words} (`{again_at}`), {off}" in page


def test_the_page_of_results_says_which_runs_were_trained_before_gradients_were_mended():
    """Those that it names are by no version that evidence names, and the longest of the shortest trainings is."""
    page = words_of("docs/results.md")
    found = [each for each in committed_evidence() if each.recipe.data.name == "cifar10"]
    by_version = {each.name: each.trained_by for each in found if each.scale == "paper"}
    assert "the short runs whose evidence names no version" in page
    assert {bool(each.trained_by) for each in found if each.scale == "short"} == {True, False}
    assert "the shortest trainings of fast SRT but for the longest of them" in page
    shortest = [each for each in found if "-shortest-" in each.name]
    assert [each.name for each in shortest if each.trained_by] == [max(shortest, key=lambda each: each.seconds).name]
    assert (
        "Standard, Worst-of-k, KLR, RT and SRT at lambda 0.2, and SRT by the authors' code; RT at 0.3 and SRT++"
        in page
    )
    methods = ("standard", "worst-of-k", "klr", "rt-lambda-0.2", "srt", "srt-authors", "rt-lambda-0.3")
    assert not any(by_version[f"cifar10-spatial-{method}"] for method in (*methods, "srt-plusplus-selected"))


def test_the_readme_says_of_the_trained_examples_what_was_measured():
    readme = words_of("README.md")
    srt, plus = (
        read(ROOT / "results" / "reproduce" / "paper" / f"mnist-{name}-srt-seed-0.json").report
        for name in ("pixel", "compound")
    )

    def percent(report, attack=None):
        return f"{100 * report.accuracy(attack):.2f} %"

    assert (
        f"gets {percent(srt)} right, and {percent(srt, 'pgd')} under PGD within 0.3, but {percent(srt, 'gridadv')} "
        "under GridAdv"
    ) in readme
    assert (
        f"gets {percent(plus)} right, {percent(plus, 'pgd')} under PGD and {percent(plus, 'gridadv')} under" in readme
    )
    assert srt["pgd"].budget.startswith("Linf 0.3,")
    assert len(srt.labels) == len(plus.labels) == 10_000


def test_the_page_of_trust_shows_what_stronger_attacks_leave_of_the_trained_models():
    trained, result = import_module("trained_models"), result_in("trained-models.json")
    text, readme = words_of("docs/trust.md"), words_of("README.md")
    assert trained.markdown(result) in text_of("docs/trust.md")
    for name, attacks in trained.MODELS.items():
        assert result["weights"][name] == numbers_in(trained.EXAMPLES / name / "model.safetensors")
        settings = {attack: row["settings"] for attack, row in result["models"][name].items()}
        assert settings == {attack: settings_of(trained.ATTACKS[attack]) for attack in attacks}

    def standing(name, attack):
        images = result["models"][name][attack]["standing"]
        assert len(images) == 100 and set(images) == {"0", "1"} and "the first 100 test images" in text
        return f"{100 * images.count('1') / len(images):.1f}"

    srt, plus = (lambda attack, name=name: standing(name, attack) for name in trained.MODELS)
    assert f"leaves {srt('pgd-restarts')} % of SRT instead of {srt('pgd')}, and {plus('pgd-restarts')} % of" in text
    assert f"of SRT+ instead of {plus('pgd')}. AutoAttack leaves {plus('autoattack')} % of SRT+." in text
    assert f"leaves {plus('gridadv+ with restarts')} % of SRT+ instead of {plus('gridadv+')} if its PGD" in text
    report = read(ROOT / "results" / "reproduce" / "paper" / "mnist-pixel-srt-seed-0.json").report
    by_autoattack, by_pgd = (f"{100 * report.accuracy(attack):.2f}" for attack in ("autoattack", "pgd"))
    assert f"Of SRT it leaves {by_autoattack} % of all 10,000 images, where PGD leaves {by_pgd}" in text
    assert (
        f"AutoAttack {by_autoattack} % of SRT and, of the first 100 images, {plus('autoattack')} % of SRT+, "
        f"where PGD leaves {plus('pgd')} %"
    ) in readme
    for name, rows in result["models"].items():
        for attack in rows.keys() & trained.USUAL:
            lost, error = trained.lost(rows[attack]["standing"], rows[trained.USUAL[attack]]["standing"])
            assert lost >= 2 * error, (name, attack)


def test_the_readme_says_what_stands_under_both_perturbations():
    readme = words_of("README.md")
    found = Measured([each for each in committed_evidence() if each.scale == "paper"])
    kept = {
        trial.name: figure.mean
        for trial in experiments()["figure-compound"].trials
        if (figure := found.figure(Cell(trial.name, "gridadv+")))
    }
    (srt, other_srt), (at, other_at) = (
        [f"{kept[f'{data}-compound-{name}']:.2f} %" for data in ("mnist", "cifar10")] for name in ("srt", "at")
    )
    alone = [figure for name, figure in kept.items() if "-compound-" not in name]
    assert len(alone) > 4
    assert (
        f"it keeps {srt} on MNIST and {other_srt} on CIFAR-10. Its rival AT+, in a sixth and a fifth of the steps, "
        f"keeps {at} and {other_at}. Every defense trained against only one kind, as far as measured, keeps "
        f"{max(alone):.2f} %"
    ) in readme
    for data, times in (("mnist", 6), ("cifar10", 5)):
        ours, theirs = (named(f"{data}-compound-{name}") for name in ("srt", "at"))
        assert (ours.steps, ours.batch) == (times * theirs.steps, theirs.batch)


def attack_rows():
    """The lines of docs/attacks.md: one for each attack, model and library that has it."""
    measured = result_in("attacks.json")["results"]
    for row in measured:
        if row["accuracy"] is not None:
            size = "–" if row["size"] is None else f"{row['size']:.3g}"
            accuracy = f"{100 * row['accuracy']:.1f} | {100 * row['ours']:.1f}"
            speed = f"{row['seconds']:.1f} | {row['times ours']:.1f}"
            who = f"{row['attack']} | {row['model']} | {row['by']} | {row['images']}"
            yield f"| {who} | {accuracy} | {size} | {speed} |"


def test_the_page_of_attacks_shows_what_was_measured():
    page = text_of("docs/attacks.md")
    assert "\n".join(attack_rows()) in page


def test_the_page_of_attacks_says_how_much_faster_ours_are():
    measured = result_in("attacks.json")["results"]
    words = words_of("docs/attacks.md")

    def times(attack, by):
        return [row["times ours"] for row in measured if row["attack"].startswith(attack) and row["by"] == by]

    assert min(times("JSMA, next", "torchattacks")) > 60
    assert "more than sixty times faster per image" in words
    assert 90 < min(times("GridAdv", "exhaustive")) <= max(times("GridAdv", "exhaustive")) < 130
    assert "about a hundred times faster than it" in words
    assert [round(ratio) for ratio in times("GridAdv", "foolbox")] == [3, 71]
    assert "the ratio to it runs from three to seventy" in words


def test_our_attacks_are_at_least_as_strong_as_the_libraries():
    measured = result_in("attacks.json")["results"]
    rivals = [row for row in measured if row["accuracy"] is not None and row["by"] != "ours"]
    assert len(rivals) > 10
    assert all(row["ours"] <= row["accuracy"] for row in rivals)
    words = words_of("docs/attacks.md")
    assert "ours leave in no row more images standing than a library does" in words


def test_the_page_of_defenses_shows_what_was_measured():
    from digits import markdown

    result = result_in("digits.json")
    page = text_of("docs/defenses.md")
    assert markdown(result) in page
    means = {figure for line in markdown(result).splitlines() for figure in re.findall(r"(\d+\.\d) ±", line)}
    shown, further = page.split("## What it shows")[1].split("## The table of all recipes")
    claims = shown + further.split("## How the settings were chosen")[1]
    for figure in re.findall(r"(?<![\w.])\d\d\.\d(?![\d.])", claims):
        assert figure in means, figure


SAID_OF_DEFENSES = (
    ("{} against {} and {} under PGD,", "pgd", "pixel-srt", "pixel-rt", "pixel-at"),
    ("{} against {} (RT) and {} (Worst-of-k)", "gridadv", "spatial-srt", "spatial-rt", "spatial-worst-of-k"),
    ("it leads UAT++ ({}), UAT-FT ({}),", "pgd", "pixel-uat-plusplus", "pixel-uat-ft"),
    ("UAT ({}) and RST ({}); VAT,", "pgd", "pixel-uat", "pixel-rst"),
    ("made for clean accuracy, keeps {}.", "pgd", "pixel-vat"),
    ("Under PGD+ it keeps {}, AT+ {},", "pgd+", "compound-srt", "compound-at"),
    ("AT (max) {}, AT (average) {} and any", "pgd+", "compound-at-max", "compound-at-average"),
    ("at half size SRT+ keeps {} under PGD+", "pgd+ half", "compound-srt"),
    ("and {} under GridAdv+,", "gridadv+ half", "compound-srt"),
    ("under GridAdv+, AT+ {} and", "pgd+ half", "compound-at"),
    ("and {}, the best single-type defenses", "gridadv+ half", "compound-at"),
    ("points of SRT ({} against {})", "pgd", "pixel-srt-fast", "pixel-srt"),
    ("of its time ({} of {} seconds)", "seconds", "pixel-srt-fast", "pixel-srt"),
    ("with N-FGSM as the solver it reaches {}.", "pgd", "pixel-srt-fast-noise"),
    ("They bring {} under PGD (SRT: {});", "pgd", "pixel-srt-plusplus", "pixel-srt"),
    ("as well, {} under GridAdv (SRT: {}).", "gridadv", "spatial-srt-plusplus", "spatial-srt"),
    ("mirrored digits) keeps {} under GridAdv", "gridadv", "spatial-srt-authors"),
)
"""words of docs/defenses.md, the column of their numbers, and the recipes"""


def test_the_page_of_defenses_says_what_was_measured():
    rows = result_in("digits.json")["rows"]
    page = words_of("docs/defenses.md")
    names = dict.fromkeys(row["recipe"].removeprefix("digits-") for row in rows)

    def found(column, name):
        return mean(row[column] for row in rows if row["recipe"] == f"digits-{name}")

    def most(column, kinds):
        return max(found(column, name) for name in names if name.startswith(kinds))

    told = [words.format(*(f"{found(column, name):.1f}" for name in by)) for words, column, *by in SAID_OF_DEFENSES]
    single, every = ("pixel-", "spatial-"), ("pixel-", "spatial-", "compound-")
    told += [
        f"any single-type defense at most {most('pgd+', single):.1f}.",
        f"too strong for all (at most {most('gridadv+', every):.1f});",
        f"single-type defenses {most('pgd+ half', single):.1f} and {most('gridadv+ half', single):.1f}.",
    ]
    other = [words for words in told if words not in page]
    assert not other, " … ".join(other)
    assert "**Fast SRT** is within 1.5 points of SRT" in page
    assert abs(found("pgd", "pixel-srt") - found("pgd", "pixel-srt-fast")) <= 1.5
    assert "No pixel-wise defense keeps one image under GridAdv." in page
    assert most("gridadv", "pixel-") == 0


def test_the_page_of_speed_shows_what_was_measured():
    import attack_speed
    import cpu
    import doubt
    import gpu_tests
    import quality
    import training

    page = text_of("docs/performance.md")
    words = " ".join(page.split())
    scripts = {"training-speed": training, "cpu-speed": cpu, "quality": quality, "attack-speed": attack_speed}
    scripts |= {"gpu-tests": gpu_tests, "doubt": doubt}
    found = {name: result_in(f"{name}.json") for name in scripts}
    for name, script in scripts.items():
        assert script.markdown(found[name]) in page
    cases = [test["cases"] for test in found["gpu-tests"]["tests"].values()]
    assert {outcome for each in cases for outcome in each} == {"passed"}
    assert f"{sum(each['passed'] for each in cases)} cases passed in {found['gpu-tests']['seconds']:.0f} sec" in words
    steps = found["training-speed"]
    assert training.growth_markdown(steps) in page
    assert f"reached {steps['speed']['matmul_peak_tflops']:.0f} TFLOP/s" in words
    assert f"side by side took {steps['four_small_runs']['ratio']:.2f} times as long" in words
    cold, warm = (steps["start_up"][f"{state}, first step"] for state in ("cold", "warm"))
    assert f"first step {cold:.1f} seconds after its start" in words
    assert f"and {warm:.1f} in the next process" in words
    assert "note" in steps["growth"]
    goals = page.split("### Goals, and what bounds")[1].split("###")[0]
    for row in steps["speed"]["rows"]:
        peer = "the authors' loss" if "the authors' loss" in row["ratio"] else "the same algorithm, run plainly"
        assert f"| {row['ratio'][peer]:.1f} |" in goals
    paces = [row["ratio"]["the authors' loss"] for row in steps["speed"]["rows"] if len(row["ratio"]) == 2]
    readme = words_of("README.md")
    claim = f"is {min(paces):.1f} (WRN-34-10) to {max(paces):.1f} times (SmallCNN) as fast as the authors' loss"
    assert claim in readme and claim in words
    earlier = [row["ratio"]["the authors' loss"] for row in steps["growth"]["rows"][-4:] if len(row["ratio"]) == 2]
    assert (
        f"({min(earlier):.1f} to {max(earlier):.1f} in an earlier run, on a host that was faster for theirs)"
        in readme
    )
    attacks = found["attack-speed"]
    assert f"is {attacks['grid']['times faster an image']:.1f} times as fast per image as foolbox" in words
    rows = attacks["grid"]["rows"]
    same = rows["foolbox"]["seconds"] / rows["ours"]["seconds"]
    assert f"where recording the queries counts most, it is {same:.1f} times" in words
    assert f"in {attacks['autoattack']['times faster']:.1f} times less time" in words
    auto, whole = attacks["autoattack"]["rows"], rows["ours, all test images"]
    assert f"| {attacks['autoattack']['times faster']:.1f} | reached, with as many images standing |" in page
    assert attacks["autoattack"]["times faster"] >= 2
    assert auto["ours"]["accuracy"] == auto["pyautoattack"]["accuracy"]
    pace = f"{attacks['grid']['times faster an image']:.1f} | all 10,000 images in {whole['seconds']:.1f} seconds"
    assert f"| {pace.replace(' | ', ' | reached, ')} |" in page
    assert attacks["grid"]["times faster an image"] >= 10
    once, again, *peers = (row["seconds"] for row in attacks["pgd"]["rows"].values())
    assert ("first PGD-20 of a process is slower than that of the peers" in words) == (once > min(peers))
    assert ("once more in the same process it is faster" in words) == (again < min(peers))
    seen = attacks["grid"]["profile"]
    own, norms = (next(row for row in seen["slowest"] if row["kernel"] == name) for name in ("convolve", "scale"))
    assert f"of the {seen['seconds']:.2f} seconds for these 1,000" in words
    assert f"{seen['seconds in kernels']:.2f} pass in kernels: {own['milliseconds']:.0f} ms in convolutions" in words
    assert f"{norms['milliseconds']:.0f} ms in BatchNorms with the ReLUs behind them" in words
    outcomes = [test["cases"] for test in found["gpu-tests"]["tests"].values()]
    passed, failed = (sum(cases.get(word, 0) for cases in outcomes) for word in ("passed", "failed"))
    ended = f"{passed} cases passed" + (f" and {failed} failed" if failed else "")
    assert f"{ended} in {found['gpu-tests']['seconds']:.0f} s" in words
    assert all(set(cases) <= {"passed", "failed"} for cases in outcomes)


def test_the_page_of_speed_says_what_speed_costs_in_accuracy():
    from quality import seeds_of

    now, before = (seeds_of(result_in(f"{name}.json")) for name in ("quality", "quality-before"))
    page = words_of("docs/performance.md")
    keys, (engine, plain, _) = ("clean", "pgd-20"), now
    (fast, *_), (slow, *_), (best,) = now.values()
    assert (
        [row["recipe"]["seed"] for row in now[engine]] == [row["recipe"]["seed"] for row in now[plain]] == [0, 1, 2]
    )
    apart = []
    for key in keys:
        by_seed = [one[key] - other[key] for one, other in zip(now[engine], now[plain], strict=True)]
        assert abs(mean(by_seed)) < 0.7
        apart.append(f"{abs(mean(by_seed)):.2f} ± {stdev(by_seed) / 3**0.5:.2f}")
    assert f"Its means over three seeds are {apart[0]} points away clean and {apart[1]} under PGD-20." in page
    here, then = (abs(rows[engine][0]["pgd-20"] - rows[plain][0]["pgd-20"]) for rows in (now, before))
    assert f"At seed 0 the engine is {here:.2f} points away under PGD-20" in page
    assert f"which differs by rounding, {then:.2f} (" in page
    assert [slow[key] for key in keys] == [before[plain][0][key] for key in keys]
    gains = [best[key] - fast[key] for key in keys]
    assert f"bring {gains[0]:.2f} points clean and {gains[1]:.2f} under PGD-20 at seed 0" in page
    assert [row["recipe"]["seed"] for row in (fast, best)] == [0, 0]


def test_accuracy_over_several_seeds_is_a_mean_with_its_standard_error():
    from quality import RUNS, markdown

    engine, plain, _ = RUNS
    made = [(engine, 0, 70.0), (plain, 0, 80.0), (engine, 1, 71.0), (engine, 2, 72.0)]
    runs = [
        {"run": run, "recipe": {"seed": seed}, "clean": found, "pgd-20": 30.0, "images_per_second": 1e4, "seconds": 9}
        for run, seed, found in made
    ]
    assert markdown({"runs": runs}).splitlines()[2:] == [
        f"| {engine} | 3 | 71.00 ± 0.58 | 30.00 ± 0.00 | 10,000 | 9 |",
        f"| {plain} | 1 | 80.00 | 30.00 | 10,000 | 9 |",
    ]
    beside_others = {**runs[0], "images_per_second": None, "seconds": None}
    assert markdown({"runs": [beside_others]}).endswith("| 70.00 | 30.00 | – | – |")
    assert markdown({"runs": [beside_others, runs[2]]}).endswith("| 70.50 ± 0.50 | 30.00 ± 0.00 | 10,000 | 9 |")


def test_the_page_of_speed_shows_a_step_before_and_after_and_what_bounds_it():
    steps, before = (result_in(f"{name}.json") for name in ("training-speed", "training-speed-before"))
    plainly, authors = "the same algorithm, run plainly", "the authors' loss"
    page = words_of("docs/performance.md")
    now = steps["speed"]["rows"]
    then = steps["growth"]["rows"][-len(now) :]
    assert [row["case"] for row in now] == [row["case"] for row in then]
    small, spatial, resnet, wide = now
    first, second = before["speed"]["rows"]
    assert [first["case"], second["case"]] == [spatial["case"], resnet["case"]]

    def listed(figures, form=".1f"):
        *most, last = (format(figure, form) for figure in figures)
        return f"{', '.join(most)} and {last}"

    def pace(row):
        return row["images_per_second"][authors if authors in row["ratio"] else plainly]

    def ours(row):
        return row["images_per_second"]["ours"]

    wide_step, products = wide["milliseconds_a_step"], wide["milliseconds_in_products"]
    worked = wide["share_of_matmul_peak"] * wide_step
    bound = 128_000 / pace(wide) / products
    needed = worked / (worked / 0.6 - (wide_step - products))
    in_turn = 4 * small["milliseconds_in_products"] / small["milliseconds_a_step"]
    for words in (
        f"ResNet-18 took {second['milliseconds_a_step']:.2f} ms before and {resnet['milliseconds_a_step']:.2f} after",
        f"spatial ResNet {first['milliseconds_a_step']:.2f} and {spatial['milliseconds_a_step']:.2f}.",
        f"ratios of {listed(ours(row) / pace(row) for row in then)} where",
        f"goals below has {listed(ours(row) / pace(row) for row in now)}, with",
        f"ours at {listed((ours(row) for row in then), ',.0f')} images a second",
        f"took {second['images_per_second'][plainly]:,.0f} images a second minutes before this run",
        f"and {resnet['images_per_second'][plainly]:,.0f} in it",
        f"come to {listed(ours(new) / pace(old) for new, old in zip(now, then, strict=True))}.",
        f"| {spatial['ratio'][plainly]:.1f} | reached on this host, where it",
        f"was {first['ratio'][plainly]:.1f} before the latest changes too",
        f"; {then[1]['ratio'][plainly]:.1f} in the earlier run, and",
        f"take {products:.1f} ms of {wide_step:.1f} at {worked / products:.0%} of the peak",
        f"bounds the ratio by {bound:.1f} |",
        f"| {wide['share_of_matmul_peak']:.0%} | missed for the same reason: with the rest as it is",
        f"would have to run at {needed:.0%} of the peak",
        f"| {steps['four_small_runs']['ratio']:.2f} | missed: products of one run",
        f"take {small['milliseconds_in_products']:.1f} of its {small['milliseconds_a_step']:.1f} ms",
        f"four in turn would take {in_turn:.1f}",
        f"| {steps['start_up']['warm share of cold']:.2f} | reached |",
    ):
        assert words in page, words


def test_the_page_of_speed_shows_what_one_function_for_all_compositions_changed():
    found = result_in("training-speed-shapes.json")
    page = words_of("docs/performance.md")
    (spatial, resnet), (spatial_then, resnet_then) = (found[when]["rows"] for when in ("after", "before"))
    assert [row["case"] for row in (spatial, resnet)] == [row["case"] for row in (spatial_then, resnet_then)]
    step, replay = "milliseconds_a_step", "seconds_to_first_replay"
    for words in (
        f"spatial ResNet took {spatial_then[step]:.2f} ms before and {spatial[step]:.2f} after",
        f"one of ResNet-18 {resnet_then[step]:.2f} and {resnet[step]:.2f}.",
        f"came after {spatial_then[replay]:.1f} and {spatial[replay]:.1f} seconds",
        f"for ResNet-18 after {resnet_then[replay]:.1f} and {resnet[replay]:.1f}:",
    ):
        assert words in page, words


def test_the_page_of_speed_shows_what_taking_weights_over_at_once_changed():
    found = result_in("training-speed-copies.json")
    page = words_of("docs/performance.md")
    (before,), (after,) = (found[when]["rows"] for when in ("before", "after"))
    plainly = "the same algorithm, run plainly"
    assert before["case"] == after["case"]
    for words in (
        f"{before['kernels']:,} and {after['kernels']:,} kernels in a step of the spatial ResNet",
        f"{before['milliseconds_a_step']:.2f} and {after['milliseconds_a_step']:.2f} ms.",
        f"took {after['images_per_second'][plainly]:,.0f} images a second and ours",
        f"ours {after['images_per_second']['ours']:,.0f}, so that the ratio was {after['ratio'][plainly]:.1f}",
        f"and {after['ratio'][plainly]:.1f} on the fastest host |",
    ):
        assert words in page, words


def test_the_page_of_speed_tells_of_the_shortest_training_that_reaches_the_papers_fast_srt():
    page = words_of("docs/performance.md")
    name = "cifar10-pixel-srt-fast-shortest-well-taught-three-steps-60"
    file = ROOT / "results" / "reproduce" / "paper" / f"{name}-seed-0.json"
    run, paper = loads(file.read_text(encoding="utf-8")), printed("Table 9", "cifar10-pixel-srt-fast")
    clean, pgd = (100 * run.report.accuracy(attack) for attack in (None, "pgd"))
    assert clean > paper["clean"] and pgd > paper["pgd"]
    assert run.kept == "last" and run.together == run.teacher_together == 1
    assert (
        f"took {paper['minutes']:.0f} minutes on a GTX 1080 to {paper['clean']} % clean and {paper['pgd']} %" in page
    )
    assert (
        f"ResNet-18 comes to {clean:.2f} % and {pgd:.2f} % in {run.seconds / 60:.1f} minutes on one H200, "
        f"{run.teacher_seconds / 60:.1f} of them for its teacher"
    ) in page
    found = Measured([each for each in committed_evidence() if each.scale == "paper"])
    for fewer in ("well-taught-three-steps-30", "taught-60"):
        assert found.figure(Cell(f"cifar10-pixel-srt-fast-shortest-{fewer}", "pgd")).mean < paper["pgd"]


def test_a_fast_search_is_no_weaker_than_one_in_float32_as_the_page_shows():
    from attack_speed import SUBJECTS, agreement_markdown

    page = text_of("docs/performance.md")
    result = result_in("attack-speed.json")
    networks = result["agreement"]
    assert agreement_markdown(result) in page
    assert list(networks) == list(SUBJECTS)
    attacks = {"PGD-20", "margin PGD-30", "GridAdv", "AutoAttack"}
    missing = {(network, attack) for network, part in networks.items() for attack in attacks - set(part["rows"])}
    assert not missing
    rows = [row for part in networks.values() for row in part["rows"].values()]
    worse = [row["by itself"]["accuracy"] - row["float32"]["accuracy"] for row in rows]
    assert len(worse) == 12
    assert max(worse) <= 0.1
    assert ("In no row is the fast search weaker**;" in page) == (max(worse) <= 0)


def test_the_page_of_defenses_shows_whose_statistics_label_best():
    from averages import markdown

    result = result_in("averages.json")
    assert markdown(result) in text_of("docs/defenses.md")
    for row in result["rows"][:-1]:
        *others, best = row["accuracy"].values()
        assert best == max(*others, best)


def test_the_page_of_defenses_says_what_an_averages_statistics_cost_on_digits():
    recipe = "digits-spatial-srt-plusplus"
    files = [result_in(f"{name}.json") for name in STATISTICS]
    found = [[row["gridadv"] for row in file["rows"] if row["recipe"] == recipe] for file in files]
    assert [len(seeds) for seeds in found] == [3, 3]
    copied, own = (sum(seeds) / 3 for seeds in found)
    page = words_of("docs/defenses.md")
    assert f"spatial SRT++ would keep {own:.1f} under GridAdv instead of {copied:.1f}" in page
    assert own < copied
    assert RECIPES[recipe].averaging.batchnorm == "copied"


def test_the_page_of_defenses_shows_which_teacher_labels_best():
    from teachers import markdown

    result = result_in("teachers.json")
    assert markdown(result) in text_of("docs/defenses.md")
    by_held_out, by_unlabeled = (
        [row["teacher"] for row in sorted(result["teachers"], key=lambda row: row[part])]
        for part in ("held out", "unlabeled")
    )
    assert by_held_out == by_unlabeled


def test_the_page_of_defenses_says_where_srt_plusplus_falls_short():
    names = [f"cifar10-pixel-{name}" for name in ("srt-plusplus-selected-estimated", "at-all-labels")]
    found = {each.name: each.report for each in committed_evidence() if each.scale == "short"}
    reports = [found[name] for name in names]
    clean, attacked = ([100 * report.accuracy(*attack) for report in reports] for attack in ((), ("pgd",)))
    made = [next(each for each in report.attacks if each.name == "pgd") for report in reports]
    moved = [report.risks_by_image(each)[1] for report, each in zip(reports, made, strict=True)]
    kept = [100 - 100 * each.double().mean().item() for each in moved]
    wrong = [whole - right for whole, right in zip(kept, attacked, strict=True)]
    page = words_of("docs/defenses.md")
    for words in (
        f"keeps {attacked[0]:.2f} % under PGD, adversarial training with the right labels of all 50,000 images "
        f"{attacked[1]:.2f} %",
        f"SRT++ does so for {wrong[0]:.1f} % of the test images, AT for {wrong[1]:.1f} %",
        f"{kept[0]:.1f} % of SRT++'s predictions do not change under attack, {kept[1]:.1f} % of AT's",
        f"though {clean[0]:.2f} and {clean[1]:.2f} % are right without one",
    ):
        assert words in page, words


def test_the_spread_over_seeds_is_that_of_all_seeds_as_some_let_it_be_estimated():
    from digits import over_seeds

    assert over_seeds([79.0, 80.0, 81.0]) == "80.0 ± 1.0", "0.8 is how far these three are from their own mean"
    assert over_seeds([80.0]) == "80.0", "one seed has no spread, which is not one of 0"


def test_the_page_of_defenses_shows_that_one_forward_pass_under_warps_is_no_worse_than_two():
    from passes import RECIPES, markdown

    result = result_in("passes.json")
    rows = result["rows"]
    assert markdown(result) in text_of("docs/defenses.md")
    for name in RECIPES:
        two, one = (
            [row["clean"] + row["gridadv"] for row in rows if (row["recipe"], row["forward"]) == (name, forward)]
            for forward in ("separate", "together")
        )
        assert sum(one) > sum(two), name


def test_the_page_of_defenses_says_what_statistics_of_clean_images_cost():
    from running_statistics import CLEAN, KEPT

    page = words_of("docs/defenses.md")
    runs = result_in("running-statistics.json")["runs"]
    rst, srt = (
        [runs[f"cifar10-pixel-{name}-resnet18-seed-0"]["found"][how]["pgd"] for how in (KEPT, CLEAN)]
        for name in ("rst", "srt-ramped-one-pass")
    )
    assert f"RST keeps {rst[0]:.2f} and {rst[1]:.2f}, SRT" in page
    assert f"in one pass, {srt[0]:.2f} and {srt[1]:.2f}" in page
    rows = [
        [row["pgd"] for row in json.loads(file.read_text(encoding="utf-8"))["rows"] if row["recipe"] == recipe]
        for recipe in ("digits-pixel-srt-plusplus",)
        for file in (
            ROOT / "results" / f"{name}.json"
            for name in ("digits", "digits-clean-statistics", "digits-averaged-statistics")
        )
    ]
    kept, clean, averaged = (sum(row) / len(row) for row in rows)
    assert f"keeps {kept:.1f} under PGD with the model's statistics and {clean:.1f} with estimated ones" in page
    assert f"{kept:.1f}" == f"{averaged:.1f}"
    assert f"pixel-wise SRT++ keeps {averaged:.1f} under PGD either way" in page
    assert RECIPES["digits-pixel-srt-plusplus"].averaging.batchnorm == "copied"


def test_the_page_of_defenses_shows_that_averaged_weights_want_averaged_statistics():
    from averages import markdown
    from robust_averages import RECIPE

    result = result_in("robust-averages.json")
    page = text_of("docs/defenses.md")
    assert markdown(result) in page
    assert recipe_files.loads(json.dumps(result["recipe"])) == RECIPE
    models, copied, averaged = (
        [row["accuracy"][name] for row in result["rows"]]
        for name in ("model", "average of 0.995, the model's statistics", "0.995, averaged ones")
    )
    assert copied[-1] < models[-1], "so the page says"
    assert all(ours >= model for ours, model in zip(averaged, models, strict=True))
    assert RECIPES["cifar10-pixel-srt-plusplus"].averaging.batchnorm == "averaged"


def test_the_page_of_defenses_shows_which_parts_of_srt_plusplus_pay():
    from plusplus import RUNS, markdown

    result = result_in("plusplus.json")
    page = text_of("docs/defenses.md")
    words, rows = " ".join(page.split()), {row["run"]: row for row in result["runs"]}
    assert markdown(result) in page
    for name, row in rows.items():
        assert recipe_files.loads(json.dumps(row["recipe"])) == RUNS[name], name
    kept = {name: row["pgd"] for name, row in rows.items()}
    before, after = kept["SRT++, lambda 3"], kept["SRT++, averaged statistics"]
    assert f"the same SRT++ keeps {after:.2f} instead of {before:.2f}" in words
    before, after = kept["RST, a slower average"], kept["RST, averaged statistics"]
    assert f"and RST {after:.2f} instead of {before:.2f}" in words
    steady = [name for name, row in rows.items() if row["recipe"]["averaging"]["batchnorm"] == "averaged"]
    assert steady == list(rows)[6:], "so the page says of the first six"
    one, three = (f"one mean, averaged statistics, lambda {weight}" for weight in (1, 3))
    before = ("SRT++, lambda 3", "RST, a slower average", "one mean over all images, one pass, a slower average")
    after = ("SRT++, averaged statistics", "RST, averaged statistics", one)
    srt, rst, mean_of_all = (rows[old]["clean"] - rows[new]["clean"] for old, new in zip(before, after, strict=True))
    assert f"pay with clean accuracy: {srt:.1f}, {rst:.1f} and {mean_of_all:.1f} points" in words
    assert f"which costs {srt:.1f} to {mean_of_all:.1f} points clean" in words
    assert f"is no worse: {kept[one]:.2f}." in words and abs(kept[one] - kept["SRT++, averaged statistics"]) < 1.6
    assert f"and SRT++ keeps {kept[three]:.2f}, the most of all rows under PGD and under C&W" in words
    assert all(max(row[attack] for row in rows.values()) == rows[three][attack] for attack in ("pgd", "cw"))
    labels = ("teacher's labels", "right labels of all images")
    assert f"The second rests on {kept[three] - kept['SRT++, averaged statistics']:.2f} points" in words
    taught, right = (kept[f"AT on the {whose}, averaged statistics"] for whose in labels)
    assert f"keeps {taught:.2f} by the teacher's labels and {right:.2f} by the right labels of all images" in words
    assert abs(taught - right) < 1.6
    chosen, usual = RUNS[three].objective, RECIPES["cifar10-pixel-srt-plusplus"].objective
    assert replace(usual, solver=chosen.solver) == chosen


def test_the_page_of_defenses_says_how_srt_plusplus_stands_beside_rst_and_when_it_was_best():
    words = words_of("docs/defenses.md")
    found = {(each.scale, each.name): each for each in committed_evidence()}
    plus, rst = (
        found["paper", f"cifar10-pixel-{name}-three-steps"] for name in ("srt-plusplus-selected", "rst-taught-alike")
    )

    def right(report, *attack):
        return f"{100 * report.accuracy(*attack):.2f}"

    assert f"keeps {right(plus.report, 'pgd')} % under PGD and {right(plus.report)} % clean on the test" in words
    assert f"average and attack {right(rst.report, 'pgd')} and {right(rst.report)} (" in words
    step = int(plus.selected["step"])
    assert f"the weights of step {step:,} of {plus.recipe.steps:,}" in words
    rate, progress = plus.recipe.optimizer.rate, step / plus.recipe.steps
    assert rate(progress) == rate(0.0), "so the page says"
    assert f"By the last weights it keeps {right(plus.other, 'pgd')}, and RST {right(rst.other, 'pgd')}." in words
    rate, step = rst.recipe.optimizer.rate, int(rst.selected["step"])
    assert isinstance(rate, Piecewise)
    assert step > max(rate.milestones) * rst.recipe.steps, "so the page says"
    assert f"RST does not: its best weights are those of step {step:,}, after the last drop" in words
    assert f"Clean accuracy does not show it: {right(plus.other)} % by the last weights." in words


def test_of_several_trainings_of_srt_plusplus_on_mnist_the_headline_shows_the_one_that_held_out_labels_chose():
    readme, words = (words_of(name) for name in ("README.md", "docs/defenses.md"))
    found = {each.name: each for each in committed_evidence() if each.scale == "paper"}
    (shown,) = [row.trial for row in ROWS if row.words == "SRT++, MNIST, pixel-wise"]
    trainings = [each for name, each in found.items() if name.startswith("mnist-pixel-srt-plusplus-selected")]
    assert len(trainings) == 4, "so both pages say"
    assert max(trainings, key=lambda each: each.selected["accuracy"]) is found[shown]
    objective, looked_at = found[shown].recipe.objective, found[shown].recipe.validation.solver
    around = objective.solver.around
    assert (
        f"On MNIST lambda is {objective.weight:g} and the search in training covers a radius of {around.eps}"
        in readme
    )
    assert (
        f"lambda is {objective.weight:g}, and the search in training goes from a {objective.solver.start} start"
        in words
    )
    held_out = found[shown].recipe.data.validation
    highest = f"within {around.eps} has the highest accuracy under PGD within {looked_at.around.eps}"
    assert f"The one {highest} on {held_out} held-out labels" in words
    whole = {
        each.name: each.report
        for each in trainings
        if "autoattack" in [attack.name for attack in each.report.attacks] and len(each.report.labels) == 10_000
    }
    best = max(whole, key=lambda name: whole[name].accuracy("autoattack"))
    more = 100 * (whole[best].accuracy("autoattack") - whole[shown].accuracy("autoattack"))
    assert found[best].recipe.objective.solver.around.eps == 0.35
    assert f"the one within 0.35 from a uniform start is {more:.2f} points above it under AutoAttack" in words


def test_the_page_of_defenses_and_the_readme_say_how_far_srt_plusplus_is_above_the_paper_on_its_network():
    readme, words = (words_of(name) for name in ("README.md", "docs/defenses.md"))
    found = {(each.scale, each.name): each for each in committed_evidence()}
    srt, plus = named("cifar10-pixel-srt"), found["paper", "cifar10-pixel-srt-plusplus-selected-three-steps-60"]
    theirs = printed("Table 4", srt.name)
    assert isinstance(plus.recipe.model, WideResNet) and isinstance(srt.model, WideResNet)
    columns = ("fgsm", "pgd", "cw")

    def right(report, *attack):
        return f"{100 * report.accuracy(*attack):.2f}"

    clean, fgsm, pgd, cw = right(plus.report), *(right(plus.report, each) for each in columns)
    assert f"{clean} % clean, {fgsm} % under FGSM, {pgd} % under PGD and {cw} % under C&W" in words
    of_paper = [f"{theirs[column]:.2f}" for column in ("clean", *columns)]
    assert f"the paper's SRT has {', '.join(of_paper[:3])} and {of_paper[3]} after 120 epochs." in words
    assert plus.recipe.steps == srt.steps // 2 and "was trained for 60 epochs" in words
    assert f"{plus.seconds / 60:.1f} minutes, {plus.teacher_seconds / 60:.1f} of them the teacher's" in words
    assert (plus.together, plus.teacher_together) == (1, 1), "but for what the page says of tests"
    step, looks = int(plus.selected["step"]), plus.held_out
    assert f"from {100 * looks['accuracy'][0]:.1f} % after the first twentieth" in words
    assert f"to {100 * max(looks['accuracy']):.1f} % at step {step:,} of {plus.recipe.steps:,}, right before" in words
    rate, next_look = plus.recipe.optimizer.rate, looks["step"][looks["step"].index(step) + 1]
    assert rate(step / plus.recipe.steps) == rate(0.0) > rate(next_look / plus.recipe.steps), "so the page says"
    high = [
        100 * look for when, look in zip(looks["step"], looks["accuracy"], strict=True) if step / 2 < when <= step
    ]
    moved = f"it moved between {min(high):.1f} and {max(high):.1f} %"
    assert f"In the second half of the steps before the drop {moved}" in words
    less = 100 * (plus.report.accuracy("pgd") - plus.other.accuracy("pgd"))
    last = f"under PGD of {right(plus.other, 'pgd')} % on the test images, {less:.2f} points less"
    assert f"The last weights have a robust accuracy {last}, and {right(plus.other)} % clean." in words
    assert f"{100 * plus.report.accuracy('pgd') - theirs['pgd']:.2f} points more under PGD than the" in readme
    (slow,) = plus.on_fewer
    few = len(slow.labels)
    assert f"Under AutoAttack it keeps {right(slow, 'autoattack')} % of the first {few} images" in words
    assert (
        slow.accuracy() > plus.report.accuracy()
        and f"easier than the rest: {right(slow)} % of them are right" in words
    )
    error = 100 * slow.survivors("autoattack").double().std().item() / few**0.5
    assert f"the standard error is {error:.1f} points for {few} images. And these {few} are easier" in readme
    assert f"SRT++ gets {right(slow)} % of them right without an attack" in readme
    again = read(ROOT / "results/srt-plusplus-once-more.json").report
    more = 100 * (again.accuracy("pgd") - plus.report.accuracy("pgd"))
    assert f"{right(again)} % clean and {right(again, 'pgd')} % under PGD, {more:.2f} points more" in words
    first = found["short", "cifar10-pixel-srt-plusplus-selected-one-mean-awp"].report
    assert f"30 epochs: {right(first)} % clean and {right(first, 'pgd')} % under PGD." in words


def test_the_page_of_fidelity_says_how_far_apart_both_means_are_on_cifar10():
    found = Measured([each for each in committed_evidence() if each.scale == "paper"])
    cells = [Cell(f"cifar10-spatial-srt{end}", "gridadv") for end in ("-two-passes", "-terms")]
    one, each = (found.figure(cell).mean for cell in cells)
    theirs = printed("Table 1", "cifar10-spatial-srt")["gridadv"]
    assert (
        f"With a mean for each term SRT on CIFAR-10 keeps {each:.2f} % under GridAdv, with one mean, in two "
        f"passes too, {one:.2f}, and the paper's {theirs:.2f} is above both"
    ) in text_of("docs/fidelity.md")
    assert theirs > max(one, each)


def test_the_page_of_fidelity_says_that_one_forward_pass_comes_to_the_papers_numbers():
    found = Measured([each for each in committed_evidence() if each.scale == "paper"])
    ours, apart = (
        [found.figure(Cell(f"cifar10-spatial-srt{end}", column)).mean for column in ("clean", "gridadv")]
        for end in ("", "-two-passes")
    )
    theirs = printed("Table 1", "cifar10-spatial-srt")
    assert (
        f"SRT on CIFAR-10 keeps {ours[1]:.2f} % under GridAdv, and {ours[0]:.2f} % clean (the paper: "
        f"{theirs['gridadv']} and {theirs['clean']}), in two {apart[1]:.2f} and {apart[0]:.2f}"
    ) in text_of("docs/fidelity.md")


def test_the_page_of_fidelity_shows_which_mean_the_rate_belongs_to():
    from first_steps import markdown
    from means import READINGS

    result = result_in("means.json")
    assert markdown(result, READINGS) in text_of("docs/fidelity.md")
    ends = [result["runs"][name]["log"][-1] for name in READINGS]
    assert [end["largest_class_share"] == 1 for end in ends] == [True, False, False]
    assert min(end["labeled_accuracy"] for end in ends[1:]) > 0.9


def test_the_page_of_fidelity_shows_what_a_second_interpolation_costs():
    from warps import COLUMNS, ONE, TWO, markdown

    result = result_in("warps.json")
    page = text_of("docs/fidelity.md")
    assert markdown(result) in page
    assert {f"the first {run['images']} test images" in page for run in result["runs"].values()} == {True}
    lost = {
        name: [run["accuracy"][f"{column}, {ONE}"] - run["accuracy"][f"{column}, {TWO}"] for column in COLUMNS]
        for name, run in result["runs"].items()
    }
    assert min(map(min, lost.values())) > 0
    rt, srt = (result["runs"][f"cifar10-spatial-{end}"]["accuracy"] for end in ("rt-lambda-0.2", "srt"))
    by_blur = [each[f"gridadv, {ONE}"] - each[f"gridadv, {TWO}"] for each in (rt, srt)]
    assert f"loses {min(by_blur):.0f} to {max(by_blur):.0f} points to it under GridAdv" in page


def test_the_page_of_fidelity_says_that_rst_alone_is_above_the_papers():
    found = Measured([each for each in committed_evidence() if each.scale == "paper"])
    page = text_of("docs/fidelity.md")
    text, runs = " ".join(page.split()), {"at": "at", "trades": "trades", "srt": "srt-ramped-one-pass", "rst": "rst"}
    theirs = {name: printed("Table 4", f"cifar10-pixel-{name}")["pgd"] for name in runs}
    ours = {name: found.figure(Cell(f"cifar10-pixel-{run}", "pgd")).mean for name, run in runs.items()}
    for name, run in runs.items():
        here, there = ours[name], theirs[name]
        assert f"| cifar10-pixel-{run} | {there:.2f} | {here:.2f} | {here - there:+.2f} |" in page
        assert (here > there) == (name == "rst")
    lead = ours["rst"] - ours["srt"]
    assert f"under PGD, {theirs['srt']} and {theirs['rst']}; here RST is {lead:.1f} points above SRT" in text
    taught, own = (found.figure(Cell(f"cifar10-pixel-{run}")).mean for run in ("standard", runs["srt"]))
    assert f"classifies {taught:.2f} % of the test images correctly" in text
    assert f"SRT at its end classifies {own:.2f} %" in text


def test_the_page_of_fidelity_says_which_rivals_are_above_srt_on_mnist():
    runs = {each.name: each for each in committed_evidence() if each.scale == "paper"}
    found = Measured(list(runs.values()))
    page = text_of("docs/fidelity.md")
    text = " ".join(page.split())

    def lead(better, worse, attack):
        apart = found.difference(*(Cell(f"mnist-pixel-{name}", attack) for name in (better, worse)))
        assert apart.points > 2 * apart.error
        return f"{apart.points:.2f}"

    for name, words in {
        "rst": "RST",
        "srt": "SRT",
        "uat-authors": "UAT, authors' rate",
        "srt-authors": "SRT, authors' rate",
    }.items():
        run, theirs = f"mnist-pixel-{name}", printed("Table 4", f"mnist-pixel-{name.split('-')[0]}")
        ours = [f"{found.figure(Cell(run, column)).mean:.2f}" for column in ("clean", "pgd", "autoattack")]
        assert f"| {words} | {run} | {' | '.join(ours)} | {theirs['clean']:.2f} | {theirs['pgd']:.2f} |" in page
    alike = ("steps", "batch", "optimizer", "data")
    for better, worse in (("rst", "srt"), ("uat-authors", "srt-authors")):
        first, second = (runs[f"mnist-pixel-{name}"].recipe for name in (better, worse))
        assert [getattr(first, field) for field in alike] == [getattr(second, field) for field in alike]
    assert (
        f"RST is {lead('rst', 'srt', 'pgd')} points above SRT under PGD and {lead('rst', 'srt', 'autoattack')} under"
    ) in text
    leads = {
        (attack, rival): found.difference(Cell("mnist-pixel-srt", attack), Cell(f"mnist-pixel-{rival}", attack))
        for attack in ("pgd", "autoattack")
        for rival in ("trades", "at")
    }
    told = {key: f"{abs(each.points):.2f} ± {each.error:.2f}" for key, each in leads.items()}
    assert f"TRADES is {told['autoattack', 'trades']} points above it, AT {told['autoattack', 'at']}, which" in text
    assert f"under PGD, {told['pgd', 'trades']} and {told['pgd', 'at']}." in text
    assert leads["autoattack", "trades"].points < -2 * leads["autoattack", "trades"].error
    too_close = [key for key, each in leads.items() if abs(each.points) <= 2 * each.error]
    assert too_close == [("pgd", "trades"), ("pgd", "at"), ("autoattack", "at")]
    apart = [lead("uat-authors", "srt-authors", attack) for attack in ("pgd", "autoattack")]
    assert f"and {apart[0]} points above SRT under PGD and {apart[1]} under AutoAttack" in text
    weights = [runs[f"mnist-pixel-{name}-authors"].recipe.objective.weight for name in ("srt", "uat")]
    assert weights == [1, 6] and "Its lambda is 1, the weight of UAT 6" in text
    over = {weight: f"mnist-pixel-srt-lambda-{weight}" for weight in ("0.2", "0.4", "0.6", "0.8")}
    robust = [found.figure(Cell(name, "pgd")).mean for name in over.values()]
    assert robust == sorted(robust) and f"from {robust[0]:.2f} at 0.2 to {robust[-1]:.2f} at 0.8" in text
    change = found.difference(Cell(over["0.8"]), Cell(over["0.2"]))
    assert change.points > -2 * change.error, "clean accuracy does not fall"
    plus = "srt-plusplus-selected-lambda-6-wider"
    assert f"trained within 0.35 it is {lead(plus, 'uat-authors', 'pgd')} points above UAT under PGD" in text
    recipe = runs[f"mnist-pixel-{plus}"].recipe
    assert (recipe.objective.weight, recipe.objective.smoothing, recipe.averaging.decay) == (6, 0.1, 0.99)


def test_the_page_of_fidelity_says_where_srt_plus_is_not_above_at_plus():
    page = text_of("docs/fidelity.md")
    text, attacks = (
        " ".join(page.split()),
        {"pgd": "PGD", "gridadv": "GridAdv", "pgd+": "PGD+", "gridadv+": "GridAdv+"},
    )

    def evidence_of(data):
        folder = ROOT / "results" / "reproduce" / "paper"
        return [read(folder / f"{data}-compound-{name}-seed-0.json") for name in ("at", "srt")]

    def falls(report, name, among):
        return 100 * (~report.survivors(name))[among].double()

    for data in ("cifar10", "mnist"):
        at, srt = (each.report for each in evidence_of(data))
        leads = {name: 100 * (srt.accuracy(name) - at.accuracy(name)) for name in attacks}
        both, alone = at.survivors() & srt.survivors(), srt.survivors() & ~at.survivors()
        apart = {name: falls(srt, name, both) - falls(at, name, both) for name in attacks}
        if data == "mnist":
            assert f"by {leads['pgd+']:.2f} and {leads['gridadv+']:.2f} points;" in text
            assert min(leads.values()) > 0 > max(each.mean().item() for each in apart.values())
            assert f"where {alone.sum()} images are right by SRT+ alone" in text
            continue
        assert sum(lead > 0 for lead in leads.values()) == 3
        assert f"{-leads['gridadv+']:.2f} points below AT+ under GridAdv+" in text
        assert f"{100 * (srt.accuracy() - at.accuracy()):.2f} points of clean accuracy" in text
        others = (at.survivors() & ~srt.survivors()).sum()
        assert f"of the {both.sum():,} that both defenses classify correctly" in text
        assert f"of the {alone.sum():,} that SRT+ alone does (AT+ has {others} of its own)" in text
        for name, words in attacks.items():
            difference = f"{apart[name].mean():+.2f} ± {apart[name].std() / both.sum().sqrt():.2f}"
            row = [f"{falls(report, name, both).mean():.2f}" for report in (at, srt)]
            assert " | ".join([f"| {words}", *row, difference, f"{falls(srt, name, alone).mean():.2f} |"]) in page
    smaller = [each.sweep.reports[0.25] for each in evidence_of("cifar10")]
    lead = 100 * (smaller[1].accuracy("pgd+") - smaller[0].accuracy("pgd+"))
    assert f"under PGD+ at 0.25 it is {lead:.2f} points above AT+" in text
    assert "gridadv+" not in {
        made.name for part in (0.25, 0.5, 0.75) for made in evidence_of("cifar10")[1].sweep.reports[part].attacks
    }


def test_the_page_of_fidelity_says_where_at_plus_is_not_above_at_max():
    page, at_plus = text_of("docs/fidelity.md"), import_module("at_plus")
    text, rows = " ".join(page.split()), list(at_plus.rows())
    assert at_plus.markdown(rows) in page
    clean, *attacked = rows
    assert f"Without an attack AT+ is {-clean.lead:.2f} points below AT (max)" in text
    by_attack = [[row for row in attacked if row.attack == attack] for attack in ("pgd+", "gridadv+")]
    for several in by_attack:
        leads = [clean.lead, *(row.lead for row in several)]
        assert leads == sorted(leads) and leads[1] < 0 < leads[-1]
        assert several[0].lead < -2 * several[0].error
    unclear = [row for row in attacked if abs(row.lead) <= 2 * row.error]
    assert [(row.attack, row.fraction) for row in unclear] == [("pgd+", 0.5)]
    assert all(row.changed[0] < row.changed[1] for row in attacked)
    runs = [read(at_plus.EVIDENCE / f"{name}-seed-0.json") for name in (at_plus.PLUS, at_plus.STRONGEST)]
    both = runs[0].report.survivors() & runs[1].report.survivors()
    parts = [[run.sweep.reports[0.25] for run in runs], [run.report for run in runs]]
    smaller, whole = (
        [f"{100 * report.survivors('pgd+')[both].double().mean():.2f} %" for report in reports] for reports in parts
    )
    assert (
        f"Of the {both.sum():,} that both classify correctly, AT+ keeps {smaller[0]} under PGD+ at 0.25 and AT (max) "
        f"{smaller[1]}, at full size {whole[0]} and {whole[1]}."
    ) in text


def test_the_page_of_fidelity_says_what_rt_and_srt_of_the_paper_are():
    found = Measured([each for each in committed_evidence() if each.scale == "paper"])
    page = text_of("docs/fidelity.md")
    text, columns = " ".join(page.split()), ("clean", "randadv", "gridadv")

    def numbers(trial):
        return [found.figure(Cell(trial, column)).mean for column in columns]

    def row(name, figures):
        return f"| {name} | " + " | ".join(f"{figure:.2f}" for figure in figures) + " |"

    ours, srt = "cifar10-spatial-rt-lambda-0.2", "cifar10-spatial-srt"
    theirs = f"{ours}-authors"
    of_rt = (ours, theirs, f"{theirs}-batch-25", f"{theirs}-batch-25-warps")
    for trial in (*of_rt, srt, f"{srt}-authors", f"{srt}-authors-warps"):
        assert row(trial, numbers(trial)) in page
    paper, of_srt = ([printed("Table 1", trial)[column] for column in columns] for trial in (ours, srt))
    assert row("the paper |", paper) in page and row("the paper |", of_srt) in page
    near, far = (
        sum(abs(mine - its) for mine, its in zip(numbers(trial), paper, strict=True)) / len(columns)
        for trial in (f"{theirs}-batch-25-warps", ours)
    )
    assert f"With both changes RT is {near:.2f} points from the paper on average, where ours is {far:.2f}" in text
    whole, few, blurred = (numbers(f"{theirs}{end}")[2] for end in ("", "-batch-25", "-batch-25-warps"))
    assert (
        f"Of the {numbers(ours)[2] - paper[2]:.1f} points under GridAdv the small batch takes {whole - few:.1f} and "
        f"the blur {few - blurred:.1f}"
    ) in text
    once, twice = (numbers(f"{srt}-authors{end}")[2] for end in ("", "-warps"))
    lead, printed_lead = twice - blurred, of_srt[2] - paper[2]
    assert f"SRT leads RT by {lead:.1f} points under GridAdv, where the paper has {printed_lead:.2f}" in text
    assert f"RT is {once - whole:.1f} points below it" in text
    assert 0.2 < (whole - few) / lead < 0.3, "a quarter of it is the number of images"
    digits = "mnist-spatial-rt-lambda-0.2"
    mine, split, batch, fewer = (
        numbers(f"{digits}{end}")[2] for end in ("", "-authors", "-authors-batch-25", "-authors-batch-21")
    )
    assert (
        f"RT at lambda 0.2 has {mine:.2f} under GridAdv, {split:.2f} with the split and the mirrored digits of the "
        f"authors' code, {batch:.2f} in 25 images a step as well and {fewer:.2f} in 21"
    ) in text
    authors = numbers("mnist-spatial-srt-authors")[2]
    assert f"SRT of the authors' code, {authors:.2f} under GridAdv" in text
    assert f"leads RT in 25 images a step by {authors - batch:.1f} points" in text


def test_the_page_of_fidelity_shows_how_the_paper_counted_under_fgsm():
    from counted import distances, figures, markdown

    page, found = text_of("docs/fidelity.md"), figures()
    assert markdown(found) in page
    stand, end, pgd_stand, pgd_end = distances(found["CIFAR-10"])
    words = " ".join(page.split())
    assert f"are {end:.2f} points from the paper's FGSM on average, those that stand {stand:.2f}" in words
    assert end < stand / 2 and pgd_stand < pgd_end / 2, "under PGD it is the other way round"
    more = [ends - stands for _, (_, stands, ends, *_) in found["CIFAR-10"]]
    assert round(sum(more) / len(more)) == 10 and "which makes them some ten points higher" in words
    rows = found["CIFAR-10"]
    assert {name for name, (paper, stands, ends, *_) in rows if abs(stands - paper) < abs(ends - paper)} == {
        "Standard",
        "RST",
    }
    (fast,) = [numbers for name, numbers in rows if name.startswith("fast SRT")]
    assert f"has {fast[4]:.2f} under PGD where the paper has {fast[3]:.2f}" in words
    assert f"but {fast[1]:.2f} under FGSM where it has {fast[0]:.2f}" in words
    found = Measured([each for each in committed_evidence() if each.scale == "paper"])
    kept = found.figure(Cell("cifar10-pixel-at", "fgsm")).mean
    assert f"| CIFAR-10 | AT | 50.35 | {kept:.2f} |" in page, "what stands is what the tables show"


def test_the_page_of_fidelity_shows_what_stands_where_more_pixels_change():
    from pixels import CAPS, markdown

    result = result_in("pixels.json")
    page = text_of("docs/fidelity.md")
    assert markdown(result) in page
    assert {f"the first {run['images']} test images" in page for run in result["runs"].values()} == {True}
    jsma = {name.rpartition("-")[2]: run["accuracy"]["jsma"] for name, run in result["runs"].items()}
    robust = ("at", "trades", "rst", "srt")
    assert min(jsma[name]["12"] for name in robust) > 98
    assert jsma["srt"]["80"] > 20 + max(jsma[name]["80"] for name in robust[:-1])
    for run in result["runs"].values():
        for attack in ("jsma", "pointwise"):
            stands = [run["accuracy"][attack][str(cap)] for cap in CAPS]
            assert stands == sorted(stands, reverse=True)
        assert run["accuracy"]["pointwise"]["50"] == run["accuracy"]["pointwise"]["112"]


def test_pixels_needed_are_those_that_fool():
    from pixels import pixels_needed

    from unperturbed.attacks import JSMA

    class Bright(torch.nn.Module):
        """Says 1 as soon as three pixels are white."""

        def forward(self, x):
            bright = x.flatten(1).sum(1) - 2.5
            return torch.stack([-bright, bright], dim=1)

    x = torch.zeros(3, 1, 4, 4)
    x[1, 0, 0, :2] = 1
    needed = pixels_needed(Bright(), x, torch.tensor([0, 0, 1]), JSMA(pixels=8))
    assert needed.tolist() == [4, 2, 0], "pixels change in pairs; the last is wrong by itself"
    assert pixels_needed(Bright(), x, torch.tensor([0, 0, 1]), JSMA(pixels=2)).tolist() == [torch.inf, 2, 0]


def answers(run, steps):
    """The cells of a table on C(x): right labels and the largest class at these steps, then accuracies in the end."""
    at = {step: place for place, step in enumerate(run.log["step"])}
    shares = [[run.log[name][at[step]] for name in ("labeled_accuracy", "largest_class_share")] for step in steps]
    cells = [f"{right:.0%} ({largest:.0%})" for right, largest in shares]
    return " | ".join(cells + [f"{100 * run.report.accuracy(name):.2f}" for name in (None, "pgd")])


def test_the_page_of_fidelity_shows_how_uat_fell():
    page = text_of("docs/fidelity.md")
    files = {
        "that of the table": ROOT / "results" / "reproduce" / "paper" / "mnist-pixel-uat-seed-0.json",
        "once more": ROOT / "results" / "uat-once-more.json",
    }
    steps = [5050, 7300, 12350, 20250, 56250]
    assert f"| run | {' | '.join(f'step {step:,}' for step in steps)} | clean | PGD |" in page
    runs = {words: loads(file.read_text(encoding="utf-8")) for words, file in files.items()}
    for words, run in runs.items():
        assert f"| {words} | {answers(run, steps)} |" in page
    first, second = runs.values()
    ends = [f"{100 * run.report.accuracy():.2f} %" for run in (first, second)]
    assert f"one came to {ends[0]} clean and the other to {ends[1]}." in " ".join(page.split())
    assert first.recipe == second.recipe == RECIPES["mnist-pixel-uat"]
    script = json.loads((files["that of the table"].parent / "mnist-pixel-uat-authors-seed-0.json").read_text())
    assert max(script["log"]["largest_class_share"]) < 0.2, "that run had no such fall"


def test_the_page_of_fidelity_shows_how_uat_told_both_passes_apart_on_cifar10():
    from running_statistics import CLEAN, KEPT, markdown

    page = text_of("docs/fidelity.md")
    flat, name = " ".join(page.split()), "cifar10-pixel-uat-resnet18-seed-0"
    run = loads((ROOT / "results" / "reproduce" / "paper" / f"{name}.json").read_text(encoding="utf-8"))
    steps = [6050, 17350, 24850, 28600, 34200, 46875]
    at = [run.log["step"].index(step) for step in steps]
    rows = {
        "the term of the labels": [f"{run.log['standard'][place]:.2f}" for place in at],
        "the KL term": [f"{run.log['robust'][place]:.3f}" for place in at],
        "labeled images that C(x) gets right (its most frequent class)": [
            f"{run.log['labeled_accuracy'][place]:.0%} ({run.log['largest_class_share'][place]:.0%})" for place in at
        ],
    }
    for words, cells in rows.items():
        assert f"| {words} | {' | '.join(cells)} |" in page
    assert f"A term of {run.log['standard'][-1]:.2f} means" in page
    assert f"term, {max(run.log['robust']):.2f} at most, was never large" in flat
    assert {run.report.accuracy(each.name) for each in run.report.attacks} | {run.report.accuracy()} == {0.1}
    result = result_in("running-statistics.json")
    assert markdown(result) in page
    assert f"at its checkpoint of step {result['runs'][name]['step']:,}" in flat
    assert {f"the first {each['images']} test images" in page for each in result["runs"].values()} == {True}
    uat = result["runs"][name]["found"]
    assert uat[KEPT]["largest_class_share"] == 1 and uat[CLEAN]["clean"] > 75 and uat[CLEAN]["pgd"] == 0


def test_the_page_of_fidelity_shows_how_near_short_runs_of_fast_srt_are_to_one_class():
    page = text_of("docs/fidelity.md")
    scenario = [
        each
        for each in committed_evidence()
        if each.scale == "short" and each.recipe.name.startswith("cifar10-pixel-srt")
    ]
    runs = {
        (each.recipe.optimizer.rate.peak, each.recipe.steps): each
        for each in scenario
        if each.recipe.name == "cifar10-pixel-srt-fast"
    }
    peaks, lengths = (sorted(set(each)) for each in zip(*runs, strict=True))
    halves = {at: share_of_records(run, 0.5) for at, run in runs.items()}
    assert f"| peak of the rate | {' | '.join(f'{length:,} steps' for length in lengths)} |" in page
    for peak in peaks:
        cells = [f"{halves[peak, n]:.0%} ({100 * runs[peak, n].report.accuracy('pgd'):.2f})" for n in lengths]
        assert f"| {peak:g} | {' | '.join(cells)} |" in page
    assert len(runs) == 15 and min(halves.values()) > 0
    text = " ".join(page.split())
    assert {(run.recipe.batch, run.recipe.ramp.over) for run in runs.values()} == {(512, 0.8)}
    assert f"at most {lengths[-1]:,} steps of 512 images" in text
    from_here = lengths.index(732)
    for length in lengths[from_here:]:
        held = [halves[peak, length] for peak in peaks]
        assert held == sorted(held), "the lower the rate, the less"
    found = Measured([each for each in scenario if each.network == "resnet-18"])
    lower = {
        (peak, few, more)
        for peak in peaks
        for few, more in pairwise(lengths)
        for apart in [found.difference(*(Cell(runs[peak, length].name, "pgd") for length in (more, few)))]
        if apart.points < -2 * apart.error
    }
    assert lower == {(0.4, 488, 732), (0.4, 977, 1221)}
    assert "at the rate of 0.4 from 488 steps to 732 and from 977 to 1,221" in text
    assert all(halves[peak, few] < halves[peak, more] for peak, few, more in lower)
    (srt,) = [each for each in scenario if each.name == "cifar10-pixel-srt"]
    assert (srt.recipe.ramp.over, srt.recipe.objective.forward) == (0.8, "separate")
    assert share_of_records(srt, 0.7) == 0


def share_of_records(run, share):
    """In how many of the records after the first tenth of a run one class took that share of C(x) or more."""
    log = zip(run.log["step"], run.log["largest_class_share"], strict=True)
    later = [found for step, found in log if step > run.recipe.steps / 10]
    return sum(found >= share for found in later) / len(later)


def test_the_page_of_fidelity_shows_how_srt_fell_on_cifar10_and_why():
    from constant import READINGS
    from first_steps import markdown

    page = text_of("docs/fidelity.md")
    paper = {each.file_name: each for each in committed_evidence() if each.scale == "paper"}
    srt, fast, growing = (
        paper[f"cifar10-pixel-{name}-resnet18-seed-0.json"] for name in ("srt", "srt-fast", "srt-ramped-one-pass")
    )
    wide = paper["cifar10-pixel-srt-fast-seed-0.json"]
    steps = [450, 6050, 17350, 28600, 30450, 34200, 46875]
    assert f"| run | {' | '.join(f'step {step:,}' for step in steps)} | clean | PGD |" in page
    assert f"| SRT | {answers(srt, steps)} |" in page
    assert f"| SRT, lambda that grows over the first half, one pass | {answers(growing, steps)} |" in page
    falls = round(srt.recipe.steps * srt.recipe.optimizer.rate.milestones[0])
    shares = [
        share for step, share in zip(srt.log["step"], srt.log["largest_class_share"], strict=True) if step < falls
    ]
    mostly = sum(share >= 0.9 for share in shares) / len(shares)
    assert (
        f"until the rate falls, after step {falls:,}, one class takes nine tenths of C(x) or more in {mostly:.0%} of"
        in page
    )
    flat = " ".join(page.split())
    for run, words in (
        (fast, "one class takes at most {:.0%} after the first tenth, and it ends at {} and {}"),
        (
            wide,
            "one class takes at most {:.0%} after the first tenth, half or more in 16% of the records, the last time "
            "just after half of the run, and fast SRT ends at {} and {}",
        ),
        (
            growing,
            "one class takes at most {:.0%} of C(x) after the first tenth of it, and ResNet-18 ends at {} and {}",
        ),
    ):
        later = zip(run.log["step"], run.log["largest_class_share"], strict=True)
        largest = max(share for step, share in later if step > run.recipe.steps / 10)
        ends = [f"{100 * run.report.accuracy(name):.2f}" for name in (None, "pgd")]
        assert words.format(largest, *ends) in flat
    later = [(step, share) for step, share in zip(wide.log["step"], wide.log["largest_class_share"], strict=True)]
    later = [(step / wide.recipe.steps, share) for step, share in later if step > wide.recipe.steps / 10]
    halves = [at for at, share in later if share >= 0.5]
    assert f"{len(halves) / len(later):.0%}" == "16%" and 0.5 < max(halves) < 0.52
    theirs = printed("Table 9", "cifar10-pixel-srt-fast")
    assert f"where the paper has {theirs['clean']} and {theirs['pgd']}: what the ResNet-18 lacks" in flat
    result = result_in("constant.json")
    assert markdown(result, READINGS) in page
    ends = {name: run["log"][-1] for name, run in result["runs"].items()}
    assert {name for name, end in ends.items() if end["largest_class_share"] > 0.9} >= set(READINGS) - {"lambda 0.2"}
    log_of = {name: run["log"] for name, run in result["runs"].items()}
    settled = [
        record["robust"]
        for record in log_of["lambda 1, clean and perturbed images in one pass"]
        if record["step"] > 400
    ]
    assert f"is what was computed, {min(settled):.2f} to {max(settled):.2f} in the last 200 steps" in page
    end, at = log_of["lambda 1"][-1], srt.log["step"].index(17350)
    assert f"it sinks to {end['robust']:.2f} in the end, and that of the labels to {end['standard']:.2f}" in flat
    robust, labels = (srt.log[name][at] for name in ("robust", "standard"))
    assert f"the robust term was {robust:.2f}, far under 0.60, and that of the labels {labels:.2f}" in flat
    for name, weight in (("lambda 1", 1.0), ("lambda 0.2", 0.2)):
        assert f"{log((1 + weight) / (0.1 + weight)):.2f} at {name}" in flat
        assert f"{log(1 + 10 * weight):.1f} at {name}" in flat


def test_the_page_of_fidelity_says_what_srt_lacks_beside_all_labels_on_mnist():
    found = Measured([each for each in committed_evidence() if each.scale == "paper"])
    page = text_of("docs/fidelity.md")
    text = " ".join(page.split())

    def cell(trial):
        return Cell(f"mnist-spatial-{trial}", "gridadv")

    def kept(trial):
        return found.figure(cell(trial)).mean

    def lead(more, less):
        return found.difference(cell(more), cell(less))

    weights = ("0.15", "0.2", "0.25", "0.3")
    rt, srt = ([at_weight("mnist", name, weight) for weight in weights] for name in ("rt", "srt"))
    rows = {"Worst-of-k, these labeled too": ("worst-of-k", "worst-of-k-all-labels", "Table 3")} | {
        f"SRT, lambda {weight}": (less.removeprefix("mnist-spatial-"), more.removeprefix("mnist-spatial-"), "Table 5")
        for weight, less, more in zip(weights, rt, srt, strict=True)
    }
    for words, (less, more, place) in rows.items():
        theirs = [printed(place, cell(trial).trial).get("gridadv") for trial in (less, more)]
        ours, gain = [f"{kept(trial):.2f}" for trial in (less, more)], lead(more, less)
        printed_there = ["–" if number is None else f"{number:.2f}" for number in theirs]
        assert (
            f"| {words} | {' | '.join([*ours, f'{gain.points:+.2f} ± {gain.error:.2f}', *printed_there])} |" in page
        )
    labels, *images = [lead(more, less) for less, more, _ in rows.values()]
    assert all(gain.points > labels.points - 2 * hypot(gain.error, labels.error) for gain in images)
    of_srt, of_rt = (
        [lead(rival, each[at]).points for words, each in rows.items() if words.startswith("SRT")]
        for rival, at in (("worst-of-k-all-labels", 1), ("worst-of-k", 0))
    )
    assert f"SRT is {of_srt[1]:.2f} points below Worst-of-k with all 60,000 labels" in text
    assert f"At lambda 0.2 RT is {of_rt[1]:.2f} points below Worst-of-k on the same labels" in text
    assert f"to {of_rt[-1]:.2f} and {of_srt[-1]:.2f} points at 0.3" in text
    assert of_rt == sorted(of_rt, reverse=True) and of_srt == sorted(of_srt, reverse=True)
    assert kept("worst-of-k") > printed("Table 3", "mnist-spatial-srt")["gridadv"]
    assert f"is only {lead('worst-of-k-all-labels', 'rt-lambda-0.2').points:.2f} points below" in text
    of_srt, of_rt = ((100 - kept(less)) / (100 - kept("worst-of-k-all-labels")) for less in ("srt", "rt-lambda-0.2"))
    assert f"at most {HARDLY_MORE:g} times as many wrong images. SRT has {of_srt:.2f} times as many as Worst" in text
    assert f"all labels, and RT {of_rt:.2f} times." in text
    ours, theirs = (
        next(each.report for each in found.evidence if each.name == cell(trial).trial)
        for trial in ("srt", "worst-of-k-all-labels")
    )
    alone = theirs.survivors("gridadv") & ~ours.survivors("gridadv")
    wrong = (alone & ~ours.survivors()).sum()
    assert (
        f"Of the {alone.sum()} images that only SRT gets wrong under GridAdv, it gets {wrong} wrong without" in text
    )


def test_the_page_of_fidelity_says_how_often_one_class_held_spatial_srt():
    page = text_of("docs/fidelity.md")
    runs = {each.name: each for each in committed_evidence() if each.scale == "paper"}

    def held(run):
        assert len(run.log["step"]) == 100
        return sum(share >= 0.5 for share in run.log["largest_class_share"])

    found = []
    for weight in ("0.15", "0.2", "0.25", "0.3"):
        trial = at_weight("cifar10", "srt", weight)
        run, theirs = runs[trial], printed("Table 1", trial)
        cells = [
            f"{100 * run.report.accuracy(name):.2f} | {theirs[name or 'clean']:.2f}" for name in (None, "gridadv")
        ]
        found.append(held(run))
        assert f"| {weight} | {trial} | {' | '.join(cells)} | {found[-1]} |" in page
    assert found[-1] > 2 * max(found[:-1])
    assert f"in {held(runs['cifar10-spatial-srt-authors'])} of 100 records (cifar10-spatial-srt-authors)" in page


def test_the_page_of_fidelity_says_how_far_rt_is_above_the_papers_over_lambda():
    found = Measured([each for each in committed_evidence() if each.scale == "paper"])
    apart = {
        weight: found.figure(Cell(trial, "gridadv")).mean - printed("Table 1", trial)["gridadv"]
        for weight in ("0.15", "0.2", "0.25", "0.3")
        for trial in [at_weight("cifar10", "rt", weight)]
    }
    assert (
        f"RT is {min(apart.values()):.1f} to {max(apart.values()):.1f} points above them under GridAdv over the four "
        f"lambdas, {apart['0.2']:.1f} at 0.2"
    ) in words_of("docs/fidelity.md")


def test_the_page_of_fidelity_says_how_far_spatial_defenses_on_mnist_are_from_the_paper():
    found = Measured([each for each in committed_evidence() if each.scale == "paper"])

    def apart(trial, place, row, column="gridadv"):
        return found.figure(Cell(trial, column)).mean - printed(place, row)[column]

    weights = ("0.15", "0.2", "0.25", "0.3")
    rows = {name: [f"mnist-spatial-{name}-lambda-{weight}" for weight in weights] for name in ("rt", "srt")}
    trials = {name: [at_weight("mnist", name, weight) for weight in weights] for name in rows}
    rt, srt = (
        [apart(trial, "Table 5", row) for trial, row in zip(trials[name], rows[name], strict=True)] for name in rows
    )
    pairs = zip(rows["srt"], rows["rt"], strict=True)
    theirs = [printed("Table 5", more)["gridadv"] - printed("Table 5", less)["gridadv"] for more, less in pairs]
    ours = [lead + mine - other for lead, mine, other in zip(theirs, srt, rt, strict=True)]
    worst, klr = (
        apart(f"mnist-spatial-{name}", "Table 3", f"mnist-spatial-{name}") for name in ("worst-of-k", "klr")
    )
    page = words_of("docs/fidelity.md")
    assert (
        f"Under GridAdv RT is {min(rt):.1f} to {max(rt):.1f} points above the paper's, Worst-of-k {worst:.1f}, KLR "
        f"{klr:.1f} and SRT {min(srt):.1f} to {max(srt):.1f}, so that SRT leads RT by {min(ours):.1f} to "
        f"{max(ours):.1f} points where the paper has {min(theirs):.1f} to {max(theirs):.1f}"
    ) in page
    shifts, turns = (
        apart("mnist-spatial-worst-of-k", "Table 3", "mnist-spatial-worst-of-k", column)
        for column in ("gridadv.t", "gridadv.r")
    )
    assert f"(Worst-of-k {shifts:.1f} and {turns:.1f} points above)" in page
    crops = apart("cifar10-spatial-standard", "Table 3", "cifar10-spatial-standard", "gridadv.t")
    assert f"it is {crops:.1f} points above the paper's under GridAdv.T" in page


def test_the_page_of_scale_shows_what_was_measured():
    from reservoir import markdown

    page = text_of("docs/scale.md")
    result = result_in("reservoir.json")
    once = result["pass"]
    assert markdown(result) in page
    told = " ".join(page.split())
    assert f"{once['images']:,} images, so that reading counts most, in {once['seconds']:.0f} seconds" in told
    assert f"delivered {result['reader_alone']['from the disk']:,.0f} images a second" in told
    assert f"from files was {result['ratio']:.3f} times as fast as from memory" in told
    rows = result_in("training-speed.json")["speed"]["rows"]
    small, wide = (row["images_per_second"]["ours"] for row in rows[2:])
    seconds = 80e6 / wide
    for words in (
        f"at the {wide:,.0f} images a second of one H200",
        f"80e6 / {wide:,.0f} s = {round(seconds, -3):,.0f} s, {seconds / 3600:.0f} hours",
        f"if the exchange costs nothing, {seconds / 3600 / 8:.1f} hours",
        f"ResNet-18 at {small:,.0f} images a second: {80e6 / small / 3600:.1f} hours",
        f"{small:,.0f} x 3,072 bytes = {small * 3072 / 1e6:.0f} MB a second",
    ):
        assert words in told, words
    assert min(result["images"], once["images"]) >= 2_000_000
    assert result["ratio"] > 0.9
    assert once["megabytes_at_most"] - once["megabytes_after_ten_steps"] < 0.02 * result["bytes"] / 2**20


def test_the_page_of_reliability_shows_the_soak_as_it_was_run():
    page = words_of("docs/reliability.md")
    soak = result_in("soak.json")
    assert soak["inputs_in_all"] == sum(soak["inputs"].values()) >= 100_000
    assert soak["failed"] == 0
    assert soak["kills_in_all"] == sum(soak["kills"].values()) >= 500
    assert min(soak["kills"].values()) > 50
    runs, writing, evaluations = soak["kills"].values()
    for words in (
        f"{soak['kills_in_all']} kills survived**: {runs} of runs at random moments, {writing} while",
        f"written, {evaluations} of evaluations",
        f"the {soak['ended_bit_for_bit']['runs']} runs",
        f"{soak['ended_bit_for_bit']['evaluations']} evaluations ended bit for bit",
        f"{soak['steps_taken_by_killed_runs']:,} steps",
        f"{soak['of_them_taken_again']:,} were taken again",
        f"{soak['inputs_in_all']:,} inputs tried**",
        f"{soak['hours_equivalent']} kills are {soak['hours_equivalent']} hours",
        f"{soak['seconds']:.0f} seconds",
        f"On {soak['date']}, on two busy x86-64 cores with {soak['memory_gib']} GiB",
        f"with seed {soak['seed']} ([results/soak.json]",
    ):
        assert words in page, words
    assert soak["cores"] == 2


def test_the_page_of_the_report_shows_what_was_measured():
    import page

    measured = result_in("page.json")
    assert page.markdown(measured) in text_of("docs/report.md")
    assert (measured["runs"], measured["images"]) == (8, 200)
    assert measured["megabytes"] < 15
    assert measured["median"]["loaded"] < 3


@pytest.mark.parametrize("name", ["report-results.png", "report-surfaces.png"])
def test_the_readme_shows_pictures_of_the_page_that_are_small(name):
    assert f"(docs/{name})" in text_of("README.md")
    assert (ROOT / "docs" / name).stat().st_size <= 200_000


def test_a_part_of_the_speeds_is_measured_alone_and_kept_row_by_row(monkeypatch, tmp_path):
    import training

    def measured(name, case, options, peak):
        if "WRN" in name:
            raise KeyboardInterrupt
        return training.Row(case=name)

    monkeypatch.setattr(training, "require_gpu", lambda: None)
    monkeypatch.setattr(training, "matmul_peak", lambda: 1.0)
    monkeypatch.setattr(training, "provenance", lambda device: {"torch": "now"})
    monkeypatch.setattr(training, "measured", measured)
    monkeypatch.setattr(training, "four_together", lambda seconds: {"ratio": 3.0})
    out = tmp_path / "speed.json"
    before = {
        part: {"provenance": {"torch": "before"}} for part in ("speed", "growth", "four_small_runs", "start_up")
    }
    out.write_text(json.dumps(before), encoding="utf-8")
    training.main(training.Options(out=out, only=("four_small_runs",)))
    now = {"provenance": {"torch": "now"}}
    assert json.loads(out.read_text()) == {**before, "four_small_runs": {**now, "ratio": 3.0}}
    with pytest.raises(KeyboardInterrupt):
        training.main(training.Options(out=out, only=("speed",)))
    after = json.loads(out.read_text())
    assert [row["case"] for row in after["speed"]["rows"]] == list(training.CASES)[:-1]
    assert after["speed"]["provenance"] == now["provenance"]
    assert after["growth"] == before["growth"]


def test_the_page_of_speed_says_how_little_images_in_doubt_cost_a_large_network():
    rows = result_in("doubt.json")["rows"]
    words = words_of("docs/performance.md")
    seconds = {name: [way["seconds"] for way in ways.values()] for name, ways in rows.items()}
    shares = [100 * one / thirty for one, thirty in zip(seconds["FGSM"], seconds["margin PGD-30"], strict=True)]
    assert f"FGSM, of one step, takes {min(shares):.0f} to {max(shares):.0f} % of the time of thirty steps" in words
    saved = [100 * (1 - few / many) for many, few in seconds.values()]
    assert f"saves only {min(saved):.0f} to {max(saved):.0f} % of the time" in words


@pytest.mark.parametrize("name", ["training", "attack_speed", "doubt", "quality", "gpu_tests"])
def test_a_benchmark_that_needs_a_gpu_says_so_and_writes_nothing(name, monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    script, out = import_module(name), tmp_path / "out.json"
    with pytest.raises(SystemExit, match="needs a GPU, and this machine has none"):
        script.main(script.Options(out=out))
    assert not out.exists()
