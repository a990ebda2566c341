"""The page in a real browser: headless Chromium, driven by Playwright."""

import json
import os
import re
import shutil
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from PIL import Image

from evaluated_runs import HOSTILE, make_run, small, write_card, write_hostile_data
from unperturbed.page import Page, write_page

CHROMIUM = os.environ.get("UNPERTURBED_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")
SWITCHES = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SCREENSHOTS = Path(__file__).parent.parent / "build" / "screenshots"
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
NAME = HOSTILE[0] + HOSTILE[2]
"""of a hostile recipe: Plotly too would take parts of it for markup"""
TITLES = ("Standard", "AT", "SRT")
SECTIONS = ("results", "risks", "training", "gallery", "classes", "surfaces", "trust", "again")
CHARTS = {
    "results": ("#accuracy-chart-0 svg",),
    "training": ("#curve-chart-0 svg",),
    "surfaces": ("#surface-left-0 canvas", "#surface-right-0 canvas", "#contour-right-0 svg"),
}


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="Chromium needs playwright")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=SWITCHES)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three runs on digits, one on hostile data, and a page on each of the two."""
    folder = tmp_path_factory.mktemp("pages")
    for name in ("standard", "at", "srt"):
        make_run(folder / name, small(f"digits-pixel-{name}"), attacks="fgsm,pgd,randadv")
    write_card(folder / "srt")
    write_page(
        [folder / name for name in ("standard", "at", "srt")], folder / "page.html", Page(images=40, points=11)
    )
    data = write_hostile_data(folder / "<i>mine.npz")
    recipe = small("digits-pixel-standard")
    hostile = replace(recipe, name=NAME, data=replace(recipe.data, name=str(data), labeled=60))
    make_run(folder / "hostile", hostile, images=40)
    write_card(folder / "hostile")
    write_page([folder / "hostile"], folder / "hostile.html", Page(images=20, points=7))
    return folder


class Visit:
    """A visit to a page: what it asked for, and what went wrong."""

    def __init__(self, context, file):
        self.requests, self.refused, self.errors = [], [], []
        self.tab = context.new_page()
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.tab.on("requestfailed", lambda request: self.refused.append((request.url, request.failure)))
        self.tab.on("pageerror", lambda error: self.errors.append(str(error)))
        self.tab.on("console", lambda said: self.errors.append(said.text) if said.type == "error" else None)
        self.tab.goto(file.as_uri())
        self.tab.wait_for_selector("#gallery-list-0 > li")

    def wander(self, *sections):
        """See these sections of the page, or all, staying wherever a chart is drawn until it is there."""
        for section in sections or SECTIONS:
            self.tab.evaluate(
                "id => document.getElementById(id).scrollIntoView({behavior: 'instant'})", f"{section}-0"
            )
            for drawn in CHARTS.get(section, ()):
                self.tab.wait_for_selector(drawn, timeout=60_000)
        return self


@pytest.fixture
def visit(browser, folder):
    contexts = []

    def made(file="page.html", viewport=DESKTOP, **options):
        contexts.append(browser.new_context(viewport=viewport, **options))
        return Visit(contexts[-1], folder / file)

    yield made
    for context in contexts:
        context.close()


@pytest.fixture(scope="module")
def seen(browser, folder):
    """A page that was wandered through; tests that share it only look."""
    context = browser.new_context(viewport=DESKTOP)
    yield Visit(context, folder / "page.html").wander()
    context.close()


def texts(tab, selector):
    return [words.strip() for words in tab.locator(selector).all_inner_texts()]


def test_the_page_loads_without_an_error_and_without_a_network(seen, folder):
    assert seen.errors == []
    assert seen.requests == [(folder / "page.html").as_uri()]


def test_answers_of_nan_have_a_column_of_their_own_among_the_confusions(seen):
    shown = (
        "pairs => [...confusion({classes: ['a', 'b']}, pairs, '').rows]"
        ".map(row => [...row.cells].map(cell => cell.textContent))"
    )
    assert seen.tab.evaluate(shown, [[0, 0, 2], [1, 0, 3], [1, -1, 4]]) == [
        ["class", "a", "b", "NaN"],
        ["a", "2", "·", "·"],
        ["b", "3", "·", "4"],
    ]
    assert seen.tab.evaluate(shown, [[0, 0, 2], [1, 1, 3]])[0] == ["class", "a", "b"]


def test_the_page_could_not_use_a_network_if_it_tried(visit):
    seen = visit()
    tried = seen.tab.evaluate("fetch('https://example.org').then(() => 'answered', () => 'refused')")
    assert tried == "refused"
    seen.tab.evaluate("document.body.append(Object.assign(new Image(), {src: 'https://example.org/a.png'}))")
    seen.tab.wait_for_timeout(200)
    assert seen.refused == [("https://example.org/a.png", "csp")]
    assert any("Content Security Policy" in error for error in seen.errors)


def test_the_tables_hold_the_numbers_of_the_reports(seen, folder):
    tab = seen.tab
    heads = [words.split("\n")[0] for words in texts(tab, "#results-0 table.results thead th")]
    assert heads == ["run", "clean", "FGSM", "PGD", "RandAdv", "worst case"]
    rows = tab.locator("#results-0 table.results tbody tr")
    assert rows.count() == 3
    for place, name in enumerate(("standard", "at", "srt")):
        report = json.loads((folder / name / "report.json").read_text())
        cells = texts(rows.nth(place), "td")
        expected = [report["clean"], *report["attacks"], report["worst_case"]]
        for cell, found in zip(cells, expected, strict=True):
            low, high = found["interval"]
            numbers = re.findall(r"\d+\.\d", cell)
            assert numbers == [f"{100 * value:.1f}" for value in (found["accuracy"], low, high)]
        assert f"{report['images']} images" in texts(rows.nth(place), "th")[0]
        risks = [row for row in texts(tab, "table.risks tbody tr") if row.startswith(f"{TITLES[place]}\t")]
        assert len(risks) == 3
        for line, found in zip(risks, report["attacks"], strict=True):
            expected = (report["standard_risk"], found["robust_risk"], found["adversarial_risk"])
            assert line.split("\t")[2:5] == [f"{value:.4f}" for value in expected]


def choose(tab, name, value):
    tab.select_option(f"#{name}-0", value)
    tab.wait_for_timeout(150)


def gallery(tab):
    """For each image that is shown its class, and for each attacked copy the model and the outcome."""
    return tab.evaluate(
        """() => [...document.querySelectorAll("#gallery-list-0 > li")].map((item) => ({
            label: item.querySelector(".original strong").textContent,
            cells: [...item.querySelectorAll(".cell")].map((cell) => ({
                model: cell.querySelector(".model").textContent,
                said: cell.querySelector("figcaption").textContent,
                outcome: cell.querySelector(".outcome").className.replace("outcome ", ""),
            })),
        }))"""
    )


def test_the_filters_filter(visit):
    tab = visit().tab
    everything = gallery(tab)
    assert len(everything) == 12
    assert all(len(item["cells"]) == 3 for item in everything)
    choose(tab, "gallery-class", "7")
    sevens = gallery(tab)
    assert 0 < len(sevens) < 12
    assert {item["label"] for item in sevens} == {"7"}
    choose(tab, "gallery-class", "")
    outcomes = set()
    for wanted in ("fooled", "stood", "wrong"):
        choose(tab, "gallery-outcome", wanted)
        found = {cell["outcome"] for item in gallery(tab) for cell in item["cells"]}
        assert found <= {wanted}
        outcomes |= found
    assert {"fooled", "wrong"} <= outcomes
    choose(tab, "gallery-outcome", "")
    choose(tab, "gallery-run", "2")
    assert {cell["model"] for item in gallery(tab) for cell in item["cells"]} == {"SRT"}
    before = gallery(tab)
    choose(tab, "gallery-attack", "RandAdv")
    assert [item["label"] for item in gallery(tab)] == [item["label"] for item in before]
    assert tab.locator("#gallery-list-0 .cell canvas[aria-label*='after RandAdv']").count() == 12


def test_what_the_gallery_says_agrees_with_its_marks(seen):
    for item in gallery(seen.tab):
        for cell in item["cells"]:
            before, after = re.search(r"says (\d), then (\d)", cell["said"]).groups()
            right = "stood" if after == item["label"] else "fooled"
            assert cell["outcome"] == (right if before == item["label"] else "wrong")


def test_more_images_come_and_the_count_says_how_many(visit):
    tab = visit().tab
    assert "40 images and 120 attacked copies" in tab.inner_text("#gallery-count-0")
    tab.click("#gallery-more-0")
    tab.wait_for_function("document.querySelectorAll('#gallery-list-0 > li').length === 40")
    assert tab.is_hidden("#gallery-more-0")


def test_a_picture_shows_the_image_and_its_change(seen):
    shown = seen.tab.evaluate(
        """() => {
            const cell = document.querySelector("#gallery-list-0 > li");
            return [...cell.querySelectorAll("canvas")].slice(0, 3).map((canvas) =>
                [...canvas.getContext("2d").getImageData(0, 0, 8, 8).data].filter((_, i) => i % 4 === 0));
        }"""
    )
    clean, attacked, change = shown
    factor = 3  # 0.5 / 0.15, rounded
    expected = [min(255, max(0, 128 + factor * (b - a))) for a, b in zip(clean, attacked, strict=True)]
    assert change == expected
    assert max(abs(b - a) for a, b in zip(clean, attacked, strict=True)) == pytest.approx(0.15 * 255, abs=1)


def eye(tab):
    return tab.evaluate("document.getElementById('surface-left-0')._fullLayout.scene._scene.getCamera().eye")


def test_a_surface_turns_by_hand_and_by_button(visit):
    tab = visit().wander("surfaces").tab
    tab.locator("#surface-left-0").scroll_into_view_if_needed()
    before = eye(tab)
    box = tab.locator("#surface-left-0 canvas").first.bounding_box()
    tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tab.mouse.down()
    tab.mouse.move(box["x"] + box["width"] / 2 + 90, box["y"] + box["height"] / 2, steps=6)
    tab.mouse.up()
    tab.wait_for_timeout(300)
    dragged = eye(tab)
    assert abs(dragged["x"] - before["x"]) + abs(dragged["y"] - before["y"]) > 0.2
    tab.focus("#turn-left-0")
    tab.keyboard.press("Enter")
    tab.wait_for_timeout(300)
    turned = eye(tab)
    assert abs(turned["x"] - dragged["x"]) + abs(turned["y"] - dragged["y"]) > 0.2


def test_another_scenario_and_another_run_change_the_surface(visit):
    tab = visit().wander("surfaces").tab
    read = "document.getElementById('surface-left-0').data[0].z.flat().join()"
    seen = {tab.evaluate(read)}
    choose(tab, "surface-scenario", "pixel")
    seen.add(tab.evaluate(read))
    for run in ("0", "1", "2"):
        choose(tab, "surface-run-left", run)
        seen.add(tab.evaluate(read))
        assert texts(tab, "#surface-title-left-0") == [TITLES[int(run)]]
    assert len(seen) == 4


def test_hostile_names_show_as_text(visit):
    seen = visit("hostile.html").wander()
    tab = seen.tab
    assert tab.title() == "1 model on <i>mine.npz, under attack"
    names = [word.replace("\u2028", "\\u2028") for word in HOSTILE]
    assert [name.strip() for name in texts(tab, "#class-table-0 tbody th")] == [name.strip() for name in names]
    options = tab.evaluate("[...document.querySelectorAll('#gallery-class-0 option')].map((o) => o.textContent)")
    assert set(options[1:]) <= set(names)
    assert texts(tab, "#surface-title-left-0") == [NAME]
    assert NAME in tab.inner_text("#accuracy-chart-0")
    assert NAME in tab.inner_text("#training-0 table")
    assert "<b>12.5 %</b> more fall" in tab.inner_text("#trust-0")
    strange = tab.evaluate(
        "document.querySelectorAll('main img, main script, main b, main svg[onload], main i').length"
    )
    assert strange == 0
    assert tab.evaluate("document.scripts.length") == 3 + 1  # the library, started
    assert seen.errors == []
    assert len(seen.requests) == 1


CONTRASTS = """() => {
    const channel = (c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    const light = (rgb) => { const [r, g, b] = rgb.map(channel); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
    const parse = (color) => color.match(/[\\d.]+/g).map(Number);
    const behind = (place) => {
        for (let each = place; each; each = each.parentElement) {
            const [r, g, b, a = 1] = parse(getComputedStyle(each).backgroundColor);
            if (a === 1) return [r, g, b];
        }
    };
    const low = [];
    for (const place of document.querySelectorAll("main *, header *, footer *")) {
        const own = [...place.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
        if (!own || !place.checkVisibility() || place.closest("svg, .chart")) continue;
        const [a, b] = [light(parse(getComputedStyle(place).color).slice(0, 3)), light(behind(place))];
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (ratio < 4.5) low.push(`${place.tagName}.${place.className} ${ratio.toFixed(2)}`);
    }
    return low;
}"""


def test_dark_and_light_show_the_same_words_in_other_colors_and_all_stand_out(visit):
    light, dark = visit().wander().tab, visit(color_scheme="dark").wander().tab
    background = "getComputedStyle(document.body).backgroundColor"
    assert light.evaluate(background) == "rgb(255, 255, 255)"
    assert dark.evaluate(background) == "rgb(15, 20, 26)"
    for section in SECTIONS:
        assert light.inner_text(f"#{section}-0") == dark.inner_text(f"#{section}-0")
    assert light.evaluate(CONTRASTS) == []
    assert dark.evaluate(CONTRASTS) == []
    light.click("text=Dark")
    assert light.evaluate(background) == "rgb(15, 20, 26)"
    dark.click("text=Light")
    assert dark.evaluate(background) == "rgb(255, 255, 255)"
    ink = "document.querySelector('#accuracy-chart-0 .xtick text').style.fill"
    assert light.evaluate(ink) == "rgb(230, 237, 243)"
    assert dark.evaluate(ink) == "rgb(28, 33, 40)"


def test_print_keeps_everything(visit):
    tab = visit(color_scheme="dark").tab
    numbers = texts(tab, "table.results td")
    tab.emulate_media(media="print")
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    tab.wait_for_selector("#contour-right-0 svg")
    assert texts(tab, "table.results td") == numbers
    assert tab.evaluate("[...document.querySelectorAll('details')].every((fold) => fold.open)")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    for place in ("accuracy-chart", "curve-chart", "contour-left", "contour-right", "gallery-list"):
        assert tab.is_visible(f"#{place}-0")
    for section in SECTIONS:
        assert len(tab.inner_text(f"#{section}-0")) > 80
    wide = (
        "[...document.querySelectorAll('.scroll')].filter((each) => getComputedStyle(each).overflowX !== 'visible')"
    )
    assert tab.evaluate(f"{wide}.length") == 0
    tab.evaluate("dispatchEvent(new Event('afterprint'))")
    assert not tab.evaluate("[...document.querySelectorAll('details')].some((fold) => fold.open)")
    assert len(tab.pdf()) > 50_000


def test_the_keyboard_reaches_every_control(visit):
    tab = visit().tab
    wanted = set(
        tab.evaluate(
            """() => [...document.querySelectorAll("a, select, button, summary, pre, .scroll, input:checked")]
                .filter((each) => each.checkVisibility())
                .map((each, place) => (each.dataset.stop = `${each.tagName} ${each.id || place}`))"""
        )
    )
    reached = set()
    for _ in range(len(wanted) + 30):
        tab.keyboard.press("Tab")
        reached.add(tab.evaluate("document.activeElement.dataset.stop ?? ''"))
    assert wanted - reached == set()
    assert len(wanted) > 25


def test_a_screen_reader_finds_headings_landmarks_labels_and_captions(seen):
    tab = seen.tab
    levels = tab.evaluate(
        "[...document.querySelectorAll('h1, h2, h3, h4, h5')].map((each) => Number(each.tagName[1]))"
    )
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(later - earlier <= 1 for earlier, later in pairwise(levels))
    assert all(tab.locator(landmark).count() == 1 for landmark in ("header", "nav", "main", "footer"))
    unlabeled = """[...document.querySelectorAll("select, input")].filter((each) => !each.labels.length).length"""
    assert tab.evaluate(unlabeled) == 0
    silent = """[...document.querySelectorAll("[role=img], [role=region], main .gallery canvas")]
        .filter((each) => !(each.getAttribute("aria-label") ?? "").trim()).length"""
    assert tab.evaluate(silent) == 0
    bare = """[...document.querySelectorAll("table")].filter((each) => !each.caption?.textContent.trim()
        || [...each.querySelectorAll("th")].some((head) => !["row", "col"].includes(head.scope))).length"""
    assert tab.evaluate(bare) == 0
    assert tab.locator("table").count() >= 6
    assert "ends at" in tab.get_attribute("#curve-chart-0", "aria-label")


@pytest.mark.parametrize(("name", "viewport"), [("desktop", DESKTOP), ("phone", PHONE)])
def test_nothing_sticks_out_and_a_screenshot_is_kept(visit, name, viewport):
    tab = visit(viewport=viewport).wander().tab
    assert tab.evaluate("document.documentElement.scrollWidth") == viewport["width"]
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    file = SCREENSHOTS / f"{name}.png"
    tab.screenshot(path=file, full_page=True)
    assert file.stat().st_size > 50_000


def test_a_browser_that_draws_no_solids_shows_contours(browser, folder):
    context = browser.new_context(viewport=DESKTOP)
    context.add_init_script(
        "const was = HTMLCanvasElement.prototype.getContext; HTMLCanvasElement.prototype.getContext = "
        "function (kind, ...rest) { return kind.startsWith('webgl') ? null : was.call(this, kind, ...rest); }"
    )
    seen = Visit(context, folder / "page.html")
    seen.tab.evaluate("document.getElementById('surfaces-0').scrollIntoView()")
    seen.tab.wait_for_selector("#contour-right-0 svg")
    assert "draws no solid surfaces" in seen.tab.inner_text("#surface-left-0")
    seen.tab.click("#turn-left-0")
    assert seen.errors == []
    context.close()


def test_the_pictures_of_the_readme_begin_and_end_where_they_should(browser, folder, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parent.parent / "benchmarks"), *sys.path])
    from demonstration import WIDTH, take_pictures

    take_pictures(browser, folder / "page.html", tmp_path)
    sizes = {}
    for file in tmp_path.iterdir():
        with Image.open(file) as picture:
            sizes[file.name] = picture.size
    assert {width for width, _ in sizes.values()} == {WIDTH}
    assert 500 < sizes["report-results.png"][1] < 925, "three models here, seven in the README"
    assert 960 < sizes["report-surfaces.png"][1] < 990
