"""Evidence: what is kept of a run, how small it is, and the page of results that is made from it."""

import base64
import json
import re
import zlib
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from handmade import committed_evidence, evidence, report, sweep
from unperturbed.experiments import evidence as files
from unperturbed.experiments import notes
from unperturbed.experiments.account import experiment_text, reports_made, seconds_trained, table_text
from unperturbed.experiments.asked import as_asked
from unperturbed.experiments.catalog import experiments
from unperturbed.experiments.definition import SURFACES, Cell
from unperturbed.experiments.editions import Edition
from unperturbed.experiments.editions import editions as editions_of
from unperturbed.experiments.gathered import LOG_LINES, thinned
from unperturbed.experiments.headline import headline
from unperturbed.experiments.measured import Measured
from unperturbed.experiments.notes import note_circumstances
from unperturbed.experiments.planning import planned
from unperturbed.experiments.results import FOLDER, READING, held, page, write_page
from unperturbed.experiments.scales import scaled
from unperturbed.models import ResNet18
from unperturbed.recipe import of_teacher
from unperturbed.recipes import named
from unperturbed.report import AttackResult, Report
from unperturbed.sweeps import Sweep
from unperturbed.version import __version__

ROOT = Path(__file__).parent.parent


def test_the_page_says_in_which_precision_attacks_searched():
    assert "in bfloat16, AutoAttack and those for the smallest\nchange (DDN, JSMA, Pointwise) in TF32" in READING
    for each in committed_evidence():
        for made in (result for found in reports_made(each) for result in found.attacks):
            if made.precision != "float32":
                finely = made.name in ("autoattack", "ddn", "jsma", "pointwise")
                assert made.precision == ("tf32" if finely else "bfloat16"), (each.file_name, made.name)


def test_committed_evidence_is_of_the_recipes_and_attacks_as_they_are():
    @cache
    def runs_of(scale, seed):
        every, networks = list(experiments().values()), ("own", "resnet-18")
        runs = [run for network in networks for run in planned(every, scale, network, (seed,))]
        return {f"{run.name}.json": run for run in runs}

    for each in committed_evidence():
        wanted = runs_of(each.scale, each.seed)[each.file_name]
        assert each.recipe == wanted.recipe, f"run {each.file_name} again, or leave it out"
        assert held(as_asked(each, wanted.trial)) == held(each), f"attack {each.file_name} again"


def test_a_sweep_on_other_images_is_no_evidence():
    swept = Sweep(eps=0.3, reports={part: report(90, {}, images) for part, images in ((0.25, 10_000), (0.5, 500))})
    made = evidence("mnist-pixel-srt", images=10_000, sweep=swept)
    (trial,) = [each for each in experiments()["figure-compound"].trials if each.name == made.name]
    assert list(as_asked(made, trial).sweep.reports) == [0.25]


def test_the_page_says_where_a_defense_is_trained_on_fewer_images_than_others():
    told = {name: " ".join(experiments()[name].remarks) for name in ("table-3", "table-8", "table-9")}
    for table, scenario, share in (("table-8", "spatial", "45 / 80"), ("table-9", "pixel", "50 / 120")):
        fast, usual = (scaled(named(f"cifar10-{scenario}-srt{end}"), "short") for end in ("-fast", ""))
        part, whole = map(int, share.split(" / "))
        assert fast.steps / usual.steps == pytest.approx(part / whole, abs=1e-3)
        assert (fast.batch, fast.data.validation, usual.data.validation) == (usual.batch, 500, 0)
        assert "holds 500 of the 10,000 labels out" in told[table]
        assert f"sees {share} of the images" in told[table]
    steps = [named(f"mnist-spatial-{name}").steps for name in ("at", "standard", "worst-of-k", "klr", "srt")]
    assert [f"{count:,}" for count in steps] == ["9,375", *["80,000"] * 4]
    assert "AT on MNIST takes 9,375 steps" in told["table-3"]
    assert "all others 80,000" in told["table-3"]


def test_every_accuracy_can_be_counted_from_what_the_page_says_of_the_files():
    assert "class numbers, 16 bits each with the low byte first, by zlib and in base64" in page([]).replace("\n", " ")
    text = (ROOT / "results" / "reproduce" / "paper" / "mnist-pixel-srt-seed-0.json").read_text()
    found, samples = files.loads(text), json.loads(text)["report"]["samples"]

    def classes(packed):
        return np.frombuffer(zlib.decompress(base64.b64decode(packed)), dtype="<u2")

    labels, clean = classes(samples["labels"]), classes(samples["clean"])
    assert {"fgsm", "pgd", "mi-fgsm", "cw"} <= samples["attacked"].keys()
    for name, packed in samples["attacked"].items():
        right = (clean == labels) & (classes(packed) == labels)
        assert 100 * right.mean() == pytest.approx(found.samples(Cell(found.name, name)).mean().item())


def test_the_page_says_what_the_error_of_a_single_seed_leaves_out():
    first, second = ([evidence("a", a, seed=seed), evidence("b", 50, seed=seed)] for seed, a in ((0, 60), (1, 80)))
    one, two = (Measured(runs).difference(Cell("a"), Cell("b")) for runs in (first, [*first, *second]))
    assert two.error > 5 * one.error, "seeds that disagree are not seen where there is one"
    words = "Where a single seed was run, which the line below a table's statements tells, the error is that of"
    assert words in page([]).replace("\n", " ")


def test_committed_evidence_is_small():
    sizes = [path.stat().st_size for path in (ROOT / "results" / "reproduce").glob("*/*.json")]
    assert sum(sizes) < 15e6
    assert all(size < 400_000 for size in sizes)


def test_evidence_comes_back_as_it_was_written(tmp_path):
    given = evidence(
        "mnist-pixel-srt", 99, pgd=96, seed=2, other=report(98, {"pgd": 95}), sweep=sweep(half=97), scale="short"
    )
    path = files.write(given, tmp_path)
    assert path == tmp_path / "short" / "mnist-pixel-srt-seed-2.json"
    (back,) = files.read_all(tmp_path)
    assert (back.name, back.seed, back.scale, back.network) == ("mnist-pixel-srt", 2, "short", "own")
    assert back.recipe == given.recipe
    assert back.log == given.log
    for cell in (Cell(given.name), Cell(given.name, "pgd"), Cell(given.name, "pgd", 0.5)):
        assert torch.equal(back.samples(cell), given.samples(cell))
    assert back.samples(Cell(given.name, "pgd"), of_other=True).mean().item() == pytest.approx(95)
    assert back.samples(Cell(given.name, "pgd", 0.5), of_other=True) is None
    assert back.samples(Cell(given.name, "pgd", 0.25)) is None
    assert back.samples(Cell(given.name, "fgsm")) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": 2}, "format 2, this version reads 1"),
        ({"scale": "long"}, "scale or network"),
        ({"report": {}}, "no report"),
        ({"seed": "0"}, "should be of type int"),
        ({"together": 0}, "one run at least shares its device, got 0"),
        ({"seconds": float("nan")}, "its seconds should be a number from 0 on, got nan"),
        ({"seconds": -1.0}, "its seconds should be a number from 0 on, got -1.0"),
        ({"teacher_seconds": float("nan")}, "the seconds of its teacher should be among its own, got nan"),
        ({"teacher_seconds": -1.0}, "the seconds of its teacher should be among its own, got -1.0"),
        ({"teacher_seconds": 61.0}, "the seconds of its teacher should be among its own, got 61.0"),
        ({"log": {"step": []}}, "the columns of its log should be as long as each other"),
        ({"log": {"step": [1, 2], "seconds": [1.0]}}, "the columns of its log should be as long as each other"),
        ({"recipe": {"type": "Recipe", "steps": -1}}, "steps"),
        ({"log": 3}, "no evidence of a run"),
    ],
)
def test_evidence_of_another_version_or_damaged_is_refused_in_a_sentence(tmp_path, change, words):
    path = files.write(evidence("mnist-pixel-srt"), tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError, match=r"seed-0\.json is no evidence") as refused:
        files.read_all(tmp_path)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0])
def test_attacks_that_took_no_possible_time_are_refused(tmp_path, seconds):
    path = files.write(evidence("mnist-pixel-srt", pgd=50), tmp_path)
    tree = json.loads(path.read_text())
    tree["report"]["attacks"][0]["seconds"] = seconds
    path.write_text(json.dumps(tree))
    with pytest.raises(ValueError, match=f"its seconds should be a finite number from 0 on, got {seconds}"):
        files.read_all(tmp_path)


@pytest.mark.parametrize("values", [[], [1.0, float("nan")], [float("inf")]], ids=str)
def test_what_is_no_number_on_a_surface_is_none_in_a_table(values):
    made = evidence("mnist-spatial-srt", surfaces={"peak.spatial": values, "surface.spatial": [50.0, 60.0]})
    found = Measured([made])
    assert found.figure(Cell(made.name, "peak.spatial")) is None
    assert found.figure(Cell(made.name, "surface.spatial")).mean == 55


def test_evidence_that_is_cut_off_or_no_text_or_no_file_is_refused_by_its_name(tmp_path):
    path = files.write(evidence("mnist-pixel-srt"), tmp_path)
    whole, sentence = path.read_bytes(), f"{path} is no evidence that can be read ("
    for damaged in (whole[:99], b"\xff\xfe", whole.replace(b"mnist", b"mni\xfft", 1)):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=rf"^{re.escape(sentence)}.*\): collect it again with `unperturbed rep"):
            files.read_all(tmp_path)
    path.unlink()
    path.mkdir()
    with pytest.raises(ValueError, match=re.escape(f"{sentence}it is no file of text): collect it again")):
        files.read_all(tmp_path)


def test_a_run_of_ten_attacks_on_ten_thousand_images_stays_small(rng):
    labels = torch.randint(10, (10_000,), generator=rng)
    clean = torch.where(torch.rand(10_000, generator=rng) < 0.8, labels, (labels + 1) % 10)

    def fooled(share):
        moved = torch.rand(10_000, generator=rng) < share
        return torch.where(moved, torch.randint(10, (10_000,), generator=rng), clean)

    attacks = tuple(
        AttackResult(
            name=f"attack {i}", budget="b" * 80, settings="s" * 200, predicted=fooled(0.5), rejected=0, seconds=1
        )
        for i in range(10)
    )
    full = Report(labels=labels, clean=clean, attacks=attacks, seed=0, provenance={})
    log = [{"step": 50 * i, **{f"q{j}": i / 7 for j in range(8)}} for i in range(1000)]
    whole = replace(evidence("a"), report=full, log=thinned(log))
    assert len(whole.dumps()) < 110_000


def test_a_log_is_thinned_evenly_to_its_last_line():
    log = [{"step": step, "standard": 1 / step} for step in range(1, 1001)]
    columns = thinned(log)
    assert len(columns["step"]) == LOG_LINES <= 300
    assert columns["step"][-1] == 1000
    assert columns["step"][0] == 10
    assert columns["standard"][-1] == 0.001
    assert thinned(log[:3])["step"] == [1, 2, 3]
    assert thinned([]) == {}


def test_a_table_shows_the_papers_numbers_ours_errors_and_what_is_not_there():
    table = experiments()["table-4"].tables[1]
    runs = [evidence("mnist-pixel-srt", 99, seed=seed, pgd=96 + seed) for seed in range(3)]
    (edition,) = editions_of(runs)
    rows = {line.split("|")[1].strip(): line for line in table_text(table, edition).splitlines()}
    assert "99.28 / 99.00 ± 0.00" in rows["SRT"]
    assert "96.60 / 97.00 ± 0.58" in rows["SRT"]
    assert "97.77 / –" in rows["SRT"]
    assert "94.69 / –" in rows["AT"]


def test_best_and_last_weights_both_have_a_row():
    better = experiments()["better"].tables[1]
    other = report(99, {"gridadv": 93})
    runs = [evidence("cifar10-spatial-srt-plusplus-selected", 99, randadv=94, gridadv=95, other=other)]
    lines = table_text(better, editions_of(runs)[0]).splitlines()
    kept, last = (line for line in lines if line.startswith(("| SRT++  ", "| SRT++, last")))
    assert "95.00" in kept
    assert last.startswith("| SRT++, last weights")
    assert "93.00" in last
    assert "95.00" not in last


def test_weights_that_were_not_kept_have_a_row_also_where_they_were_not_attacked():
    table, name = experiments()["better"].tables[1], "cifar10-spatial-srt-plusplus-selected"

    def rows(step):
        runs = [evidence(name, 99, gridadv=95, steps=2930, selected={"step": step, "accuracy": 0.4})]
        lines = table_text(table, editions_of(runs)[0]).splitlines()
        return [
            [cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| SRT++, last")
        ]

    assert rows(2920) == [["SRT++, last weights", "–", "–", "–"]]
    assert rows(2930) == [], "the best ones are the last"


def test_a_statement_on_runs_that_two_editions_share_is_told_once():
    spatial = "cifar10-spatial-srt-plusplus-selected-two-passes"
    larger = "cifar10-pixel-srt-plusplus-selected-three-steps"
    runs = [
        evidence(spatial, 87, gridadv=58, scale="short", recipe=named("cifar10-spatial-srt")),
        evidence(larger, 79, pgd=43, scale="short", network="resnet-18", recipe=named("cifar10-pixel-srt")),
    ]
    text = experiment_text(experiments()["better"], runs)
    assert text.count("reaches 70 % under GridAdv on CIFAR-10 (the paper: 64.83 %) (") == 1
    assert text.count("under AutoAttack on CIFAR-10 (the paper: PGD 48.66 %) (") == 1


def test_runs_are_counted_below_the_tables_that_show_them():
    runs = [
        evidence("cifar10-spatial-srt", 87, gridadv=58, scale="short", recipe=named("cifar10-spatial-srt")),
        evidence("cifar10-pixel-srt", pgd=43, scale="short", network="resnet-18", recipe=named("cifar10-pixel-srt")),
    ]
    own, larger, _ = experiment_text(experiments()["better"], runs).split("\n### ")[1:]
    assert [re.findall(r"(?m)^(\d+) runs? of", part) for part in (own, larger)] == [["1"], ["1"]]


def test_the_weights_that_a_run_which_its_guard_ended_did_not_keep_are_the_last():
    recipe, table = named("cifar10-pixel-srt-fast"), experiments()["table-9"].tables[0]
    assert recipe.validation.keep == "last"

    def row(*ends):
        runs = [
            evidence(recipe.name, 80, recipe=recipe, seed=seed, steps=end, other=report(70, {}))
            for seed, end in enumerate(ends)
        ]
        (line,) = (line for line in table_text(table, editions_of(runs)[0]).splitlines() if "weights" in line)
        return line.split("|")[1].strip()

    assert row(recipe.steps) == "fast SRT, best weights"
    assert row(recipe.steps // 2) == "fast SRT, last weights"
    assert row(recipe.steps // 2, recipe.steps) == "fast SRT, other weights"


def test_editions_do_not_mix_networks_or_scales():
    wide, narrow = named("cifar10-pixel-srt"), replace(named("cifar10-pixel-srt"), model=ResNet18())
    runs = [
        evidence("cifar10-pixel-srt", pgd=48, recipe=wide),
        evidence("cifar10-pixel-srt", pgd=44, recipe=narrow, network="resnet-18"),
        evidence("cifar10-pixel-srt", pgd=40, recipe=narrow, network="resnet-18", scale="short"),
        evidence("cifar10-pixel-at", pgd=30, recipe=narrow, network="resnet-18", scale="short"),
        evidence("mnist-pixel-srt", 99, pgd=96),
    ]
    text = experiment_text(experiments()["table-4"], runs)
    own, other, short, _ = text.split("\n### ")[1:]
    assert "48.66 / 48.00" in own
    assert "96.60 / 96.00" in own
    assert "48.66 / 44.00" in other
    assert "96.60" not in other
    assert "48.66 / 40.00" in short and "37.37 / 30.00" in short
    assert "ResNet-18 in place of WRN-34-10" in other.splitlines()[0]

    def of_srt(runs):
        lines = headline(runs).splitlines()
        return [line.split("|")[2].strip() for line in lines if line.startswith("| SRT, CIFAR-10, pixel-wise ")]

    both = [f"ours, paper schedule, {network}" for network in ("WRN-34-10", "ResNet-18")]
    assert of_srt(runs) == ["the paper", *both]
    assert of_srt(runs[2:]) == ["the paper", "ours, short schedule, ResNet-18"], "where there is nothing longer"


@pytest.mark.parametrize("attack", ["autoattack", "pgd"])
def test_the_headline_says_where_an_attack_saw_fewer_images(attack):
    slow = report(98, {attack: 90}, images=500)
    lines = headline([evidence("mnist-pixel-srt", on_fewer=(slow,))]).splitlines()
    (ours,) = [line for line in lines if "ours" in line]
    assert "90.00 (500)" in ours


def test_the_headline_has_minutes_of_trainings_that_were_alone_and_says_what_is_no_schedule_of_the_papers():
    recipe = next(trial for trial in experiments()["better"].trials if trial.name.endswith("-three-steps-60")).recipe
    name = "cifar10-pixel-srt-fast-shortest-well-taught-three-steps-60"
    for together, minutes in ((1, "5.0"), (2, "–")):
        lines = headline([evidence(name, 83, pgd=45, recipe=recipe, seconds=300.0, together=together)]).splitlines()
        (ours,) = [line for line in lines if "ours" in line]
        assert [cell.strip() for cell in ours.split("|")[2:-1]] == [
            "ours, 60 epochs, ResNet-18",
            "83.00",
            "45.00",
            "",
            "–",
            minutes,
        ]
    (paper,) = [line for line in lines if line.startswith("| fast SRT, CIFAR-10, pixel-wise  ")]
    assert [cell.strip() for cell in paper.split("|")[2:-1]] == ["the paper", "82.27", "44.93", "", "", "257"]


def test_nothing_is_said_of_fewer_images_once_an_attack_saw_all():
    slow = report(98, {"autoattack": 90}, images=500)
    runs = [evidence("mnist-pixel-srt", pgd=96, autoattack=89, on_fewer=(slow,))]
    (ours,) = [line for line in headline(runs).splitlines() if "ours" in line]
    assert "89.00" in ours and "500" not in ours
    assert "500" not in experiment_text(experiments()["table-4"], runs)
    pointwise = report(98, {"pointwise": 2}, images=500)
    (ours,) = [
        line
        for line in headline([evidence("mnist-pixel-srt", autoattack=89, on_fewer=(pointwise,))]).splitlines()
        if "ours" in line
    ]
    assert "89.00" in ours and "500" not in ours


def test_a_cell_says_on_how_many_images_an_attack_was_made_where_it_saw_fewer():
    slow = report(98, {"autoattack": 90}, images=500)
    runs = [evidence("mnist-pixel-srt", pgd=96, on_fewer=(slow,)), evidence("mnist-pixel-at", pgd=95, autoattack=88)]
    lines = table_text(experiments()["table-4"].tables[1], editions_of(runs)[0]).splitlines()
    rows = {line.split("|")[1].strip(): line for line in lines}
    assert "– / 90.00 (500)" in rows["SRT"]
    assert "96.00 (" not in rows["SRT"]
    assert rows["AT"].rstrip(" |").endswith("– / 88.00")


def test_srt_by_the_authors_script_is_held_against_the_same_printed_row():
    runs = [evidence("mnist-pixel-srt", 99.2, pgd=95.5), evidence("mnist-pixel-srt-authors", 99.2, pgd=96.5)]
    lines = experiment_text(experiments()["table-4"], runs).splitlines()
    (printed,) = [
        line for line in lines if "our pixel-wise SRT is at most a point under the paper's on MNIST" in line
    ]
    (scripted,) = [line for line in lines if "at the rate of the authors' script is at most a point under" in line]
    assert printed.startswith("- **fail**")
    assert scripted.startswith("- **pass**")
    assert "PGD 96.50 (SRT (authors' rate)) against 96.6 less 1" in scripted, (
        "the paper's number, and what ours may lack"
    )
    assert "99.20 | 96.50" in next(line for line in headline(runs).splitlines() if "authors' rate" in line)


@pytest.mark.parametrize(("constant", "told"), [(0, False), (1, True), (9, True), (18, True)])
def test_it_is_told_for_how_much_of_its_training_the_answers_of_a_run_were_one_class(constant, told):
    run = evidence("mnist-pixel-srt", pgd=96)
    steps = [run.recipe.steps * record // 20 for record in range(1, 21)]
    shares = [1.0, 1.0, *[0.95] * constant, *[0.2] * (18 - constant)]
    run = replace(run, log={"step": steps, "largest_class_share": shares})
    text = experiment_text(experiments()["table-4"], [run])
    words = "one class took 90% of C(x) or more for so much of the time: mnist-pixel-srt-seed-0"
    assert (f"{words} ({constant / 18:.0%})." in text) == told, "what is learned in the first tenth is no fall"
    assert "one class took" not in experiment_text(experiments()["table-4"], [replace(run, log={"step": steps})])


def test_images_of_an_attack_that_a_table_does_not_show_are_not_told_below_it():
    few = report(99, {"autoattack": 90}, images=100)
    runs = [evidence(name, pgd=96, gridadv=50, on_fewer=(few,)) for name in ("mnist-pixel-srt", "mnist-compound-srt")]
    assert "AutoAttack on the first 100 where a cell says so" in experiment_text(experiments()["table-4"], runs)
    assert "where a cell says so" not in experiment_text(experiments()["figure-compound"], runs)


def test_a_run_that_has_nothing_to_show_in_a_table_is_not_counted_below_it():
    surfaces = {name: [50.0] * 20 for name in SURFACES}
    shown, bare = evidence("mnist-pixel-srt", pgd=96, surfaces=surfaces), evidence("mnist-pixel-standard", pgd=9)
    figure = experiments()["figure-surfaces"]
    assert "1 run of SmallCNN" in experiment_text(figure, [shown, bare])
    alone = experiment_text(figure, [bare])
    assert "run of SmallCNN" not in alone
    assert "MNIST, pixel-wise:\n\n2 rows are not measured yet." in alone


def test_hours_device_seeds_and_differences_are_told():
    runs = [
        evidence("mnist-pixel-srt", pgd=96, seconds=7200.0, together=4, device="cuda: NVIDIA H200", seed=s)
        for s in (0, 1)
    ]
    text = experiment_text(experiments()["table-4"], runs)
    assert "2 runs of SmallCNN (seeds 0, 1) on cuda: NVIDIA H200: 1.00 hours of training, 0.02 of attacks" in text
    assert "What differs: the paper states no budget for JSMA" in text
    apart = experiment_text(
        experiments()["table-4"], [evidence("mnist-pixel-srt", pgd=96, trained_on="cuda: NVIDIA H200")]
    )
    assert "on cuda: NVIDIA H200: 0.02 hours of training, 0.01 of attacks on 1,000 test images, made on cpu." in apart
    both = [*runs, evidence("mnist-pixel-at", pgd=95, trained_on="cuda: NVIDIA H200")]
    text = experiment_text(experiments()["table-4"], both)
    assert "3 runs of SmallCNN (seeds 0, 1) on cuda: NVIDIA H200: " in text
    assert "test images, made on cpu and cuda: NVIDIA H200." in text
    (result,) = runs[0].report.attacks
    more = evidence("mnist-pixel-srt", pgd=96, other=report(98, {"pgd": 95}), sweep=sweep(half=97, whole=96))
    assert sum(each.seconds for found in reports_made(more) for each in found.attacks) == 3 * result.seconds
    few = report(98, {"autoattack": 90}, images=500)
    text = experiment_text(experiments()["table-4"], [replace(runs[0], on_fewer=(few,))])
    assert "test images, made on cpu and cuda: NVIDIA H200, AutoAttack on the first 500 where" in text


def test_a_teacher_that_runs_share_counts_once():
    rst, uat = named("mnist-pixel-rst"), named("mnist-pixel-uat-ft")
    assert of_teacher(rst) == of_teacher(uat)
    one = evidence("mnist-pixel-rst", pgd=96, seconds=7200.0, teacher_seconds=3600.0, together=4, recipe=rst)
    two = evidence("mnist-pixel-uat", pgd=96, seconds=9000.0, teacher_seconds=3600.0, recipe=uat)
    text = experiment_text(experiments()["table-4"], [one, two])
    assert "2 runs of SmallCNN (seeds 0) on cpu: 2.75 hours of training" in text
    assert seconds_trained([one]) == 3600 / 4 + 3600, "it is trained before the runs that share a device"
    apart = 3600 / 4 + 9000 + 3600
    assert seconds_trained([one, replace(two, recipe=replace(uat, seed=1))]) == apart
    assert seconds_trained([one, replace(two, teacher_seconds=1800.0)]) == apart, "it was trained again elsewhere"
    assert seconds_trained([one, replace(two, teacher_seconds=0.0)]) == apart, "a file that does not tell of it"
    assert seconds_trained([replace(one, teacher_together=4)]) == 3600 / 4 + 3600 / 4, "others shared its device"


def test_seconds_of_a_teacher_need_not_be_told(tmp_path):
    made = evidence("mnist-pixel-rst", seconds=9.0, teacher_seconds=4.0, teacher_together=3)
    path = files.write(made, tmp_path)
    (told,) = files.read_all(tmp_path)
    assert (told.seconds, told.teacher_seconds, told.teacher_together) == (9.0, 4.0, 3)
    tree = json.loads(path.read_text())
    del tree["teacher_seconds"], tree["teacher_together"]
    path.write_text(json.dumps(tree))
    (untold,) = files.read_all(tmp_path)
    assert (untold.seconds, untold.teacher_seconds, untold.teacher_together) == (9.0, 0.0, 1)


def test_all_devices_that_a_run_was_trained_on_are_noted(tmp_path):
    note_circumstances(tmp_path, {"cuda: NVIDIA H200"}, 4)
    note_circumstances(tmp_path, {"cpu: x86_64"}, 1)
    note_circumstances(tmp_path, {"cuda: NVIDIA H200"}, 1)
    assert notes.read_notes(tmp_path) == {
        "trained_on": "cpu: x86_64, cuda: NVIDIA H200",
        "trained_by": __version__,
        "together": 4,
    }


def test_all_versions_that_trained_a_run_and_its_teacher_are_noted(tmp_path):
    notes.note(tmp_path, trained_by="0.0.1")
    note_circumstances(tmp_path, set(), 1, {"0.0.2"})
    assert notes.read_notes(tmp_path)["trained_by"] == f"0.0.1, 0.0.2, {__version__}"


def test_smoke_runs_are_no_results(tmp_path):
    assert page([evidence("mnist-pixel-srt", pgd=12.34, scale="smoke")]) == page([])
    assert "12.30" in page([evidence("mnist-pixel-srt", pgd=12.3)])
    files.write(evidence("mnist-pixel-srt", 12.3, images=10_000), tmp_path)
    assert write_page(tmp_path, tmp_path / "page.md") == 1
    assert "99.28 / 12.30" in (tmp_path / "page.md").read_text()


def by_another_recipe():
    recipe = named("mnist-spatial-srt")
    return {"recipe": replace(recipe, objective=replace(recipe.objective, weight=7.0))}


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("mnist-spatial-srt", by_another_recipe(), "another recipe (objective.weight is 7.0 there and 0.2 now)"),
        ("mnist-pixel-srt", {"seed": 1}, "another recipe (data.seed is 0 there and 1 now)"),
        ("mnist-pixel-srt", {"pgd": 95}, "attacks by other settings, images or weights than are asked for"),
        ("mnist-pixel-srt", {"images": 500}, "attacks by other settings, images or weights than are asked for"),
        ("mnist-pixel-srt-of-old", {}, "is evidence of a run that no experiment has"),
    ],
)
def test_what_is_no_evidence_of_experiments_as_they_are_now_is_refused_and_no_page_written(
    name, changes, words, tmp_path
):
    path = files.write(evidence(name, **{"images": 10_000} | changes), tmp_path)
    with pytest.raises(ValueError, match=re.escape(words)) as refused:
        write_page(tmp_path, tmp_path / "page.md")
    assert str(refused.value).startswith(f"{path} ")
    assert not (tmp_path / "page.md").exists()


@pytest.mark.parametrize("place", ["paper/copy.json", "short/mnist-pixel-srt-seed-0.json"])
def test_evidence_by_another_name_than_its_run_has_is_refused(place, tmp_path):
    path = files.write(evidence("mnist-pixel-srt"), tmp_path)
    (tmp_path / place).parent.mkdir(exist_ok=True)
    path.rename(tmp_path / place)
    sentence = re.escape(f"{place} holds what belongs in paper/mnist-pixel-srt-seed-0.json: move it there")
    with pytest.raises(ValueError, match=sentence):
        files.read_all(tmp_path)


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("repository/docs/results.md", "stands in [fidelity.md](fidelity.md)."),
        ("repository/docs/more/results.md", "stands in [fidelity.md](../fidelity.md)."),
        ("repository/results.md", "stands in [fidelity.md](docs/fidelity.md)."),
        ("repository/build/pages/results.md", "stands in [fidelity.md](../../docs/fidelity.md)."),
        ("results.md", "stands in docs/fidelity.md."),
    ],
)
def test_the_link_of_the_page_leads_from_where_it_lies_or_is_none(page, words, tmp_path):
    files.write(evidence("mnist-pixel-srt", images=10_000), tmp_path / "evidence")
    (tmp_path / "repository" / "docs").mkdir(parents=True)
    (tmp_path / "repository" / "docs" / "fidelity.md").touch()
    (tmp_path / page).parent.mkdir(parents=True, exist_ok=True)
    write_page(tmp_path / "evidence", tmp_path / page)
    assert words in (tmp_path / page).read_text(encoding="utf-8")


def test_the_page_of_results_is_written_as_it_is_committed(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "fidelity.md").touch()
    write_page(FOLDER, tmp_path / "docs" / "results.md")
    written, committed = ((place / "docs" / "results.md").read_bytes() for place in (tmp_path, ROOT))
    assert written == committed, "write it again: unperturbed reproduce --write docs/results.md"


def test_a_table_that_no_run_belongs_to_stands_on_the_page_as_well():
    text = experiment_text(experiments()["table-4"], [evidence("mnist-pixel-srt", pgd=96)])
    run, missing = text.split("### Not measured yet")
    assert "MNIST:" in run and "CIFAR-10:" not in run
    assert "CIFAR-10:" in missing and "| 48.66 / – |" in missing and "MNIST:" not in missing


def test_surfaces_that_an_older_version_measured_count_where_they_were_inside_the_budget():
    """Pixel-wise they reached 2 eps; and slopes and ruggedness were not known."""
    old = {name: [50.0, 60.0] for name in ("surface.pixel", "surface.spatial", "peak.pixel", "peak.spatial")}
    spatial, pixel = (evidence(f"mnist-{scenario}-srt", surfaces=old) for scenario in ("spatial", "pixel"))
    assert files.loads(spatial.dumps()).samples(Cell("", "surface.spatial")).tolist() == [50.0, 60.0]
    text = experiment_text(experiments()["figure-surfaces"], [spatial, pixel])
    rows = [[cell.strip() for cell in row.split("|")[2:-1]] for row in text.splitlines() if row.startswith("| SRT ")]
    assert rows == [["55.00", "–", "–", "55.00", "–"]], "pixel-wise nothing counts"
    assert text.count("- not yet: ") == len(experiments()["figure-surfaces"].statements)
    new = evidence("mnist-pixel-srt", surfaces={name: [50.0, 60.0] for name in SURFACES})
    assert all(new.samples(Cell("", name)).tolist() == [50.0, 60.0] for name in SURFACES)


def test_every_table_of_the_paper_stands_on_the_page():
    text = page([])
    for number in range(1, 10):
        assert f"## table-{number}:" in text
    for figure in ("compound", "unlabeled", "surfaces", "fast"):
        assert f"## figure-{figure}:" in text
    assert "## better:" in text
    assert "48.66 / –" in text


def test_a_whole_reproduction_stays_below_fifteen_megabytes():
    """Eight kilobytes for predictions under an attack, as many for labels and clean ones, 15 for recipe and log."""
    runs = planned(list(experiments().values()), "paper", "own", (0,))
    reports = sum(1 + len(run.trial.fractions) + (run.recipe.data.validation > 0) for run in runs)
    attacks = sum(len(run.trial.attacks) + len(run.trial.fractions) * len(run.trial.swept) for run in runs)
    assert 8e3 * (2 * reports + attacks) + 15e3 * len(runs) < 15e6


def test_a_statement_stands_where_it_was_measured_and_else_once_among_what_was_not_run():
    experiment = experiments()["table-3"]
    attacks = {"gridadv": 90.0, "randadv": 95.0}
    long = [evidence(f"mnist-spatial-{name}", 99, **attacks) for name in ("standard", "at")]
    short = [evidence("cifar10-spatial-srt", 89, scale="short", **attacks)]
    *told, last = experiment_text(experiment, [*long, *short]).split("\n### ")
    assert [part.count("AT is no help against GridAdv on MNIST") for part in told] == [0, 1, 0]
    assert [part.count("our spatial SRT is at most a point under the paper's on CIFAR-10") for part in told] == [
        0,
        0,
        1,
    ]
    assert "not yet" not in "".join(told)
    assert last.startswith("Not measured yet\n\n- not yet: ")
    assert last.count("AT is no help against spatial attacks on CIFAR-10") == 1


def test_what_is_not_measured_and_what_is_not_decided_are_told_apart():
    experiment = experiments()["table-6"]
    assert "- not yet: SRT is above RT at the same lambda" in experiment_text(experiment, [])
    names = [trial.name for trial in experiment.trials if "lambda" in trial.name]
    equal = [evidence(name, 99, fgsm=95, pgd=90) for name in names]
    assert "- not decided: SRT is above RT at the same lambda" in experiment_text(experiment, equal)
    better = [evidence(name, 99, fgsm=95, pgd=95 if "-srt-" in name else 90) for name in names]
    assert "- not decided: SRT is above RT at the same lambda" in experiment_text(experiment, better)
    best = [
        evidence(name, 99, fgsm=98 if "-srt-" in name else 90, pgd=95 if "-srt-" in name else 90) for name in names
    ]
    assert "- **pass**: SRT is above RT at the same lambda" in experiment_text(experiment, best)
    worse = [evidence(name, 99, fgsm=80 if "-srt-" in name else 90, pgd=90) for name in names]
    assert "- **fail**: SRT is above RT at the same lambda" in experiment_text(experiment, worse)


def test_an_edition_says_whose_networks_it_has_and_a_smoke_run_has_a_tiny_one():
    assert Edition("paper", "own", ()).title == "the paper's schedule, the paper's networks"
    assert Edition("short", "resnet-18", ()).title.endswith(", ResNet-18 in place of WRN-34-10")
    assert Edition("smoke", "own", ()).title.endswith("seconds on a CPU, no result")
