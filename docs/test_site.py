"""The built site: that every link leads somewhere, and that the explorer walks as the reference does.

``make docs`` builds it, ``make test-docs`` builds and tests it. The explorer runs in Chromium.
"""

import html
import html.parser
import json
import os
import pathlib
import random
import shutil
import urllib.parse

import pytest
from im2col_reference import sources, walk

HERE = pathlib.Path(__file__).parent
SITE = HERE.parent / "build" / "docs"
PAGE = SITE / "gluon" / "conv-im2col.html"
PAGES = ["index", "gluon/conv-im2col", "gluon/tutorials/13-conv-im2col", "gluon/performance", "gluon/upstream-findings",
         "triton_conv", "simulator", "simulator-api", "contributing"]  # yapf: disable

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="the site is not built: make docs")


class Links(html.parser.HTMLParser):

    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.images_without_alt = set(), [], []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.ids.update(filter(None, (attributes.get("id"), attributes.get("name") if tag == "a" else None)))
        for name in ("href", "src"):
            if attributes.get(name):
                self.links.append(attributes[name])
        if tag == "img" and not attributes.get("alt"):
            self.images_without_alt.append(attributes.get("src"))


def test_the_tutorials_page_has_the_output_of_a_real_run():
    text = (SITE / "gluon" / "tutorials" / "13-conv-im2col.html").read_text()
    recorded = (HERE / "gluon" / "tutorial-h200.txt").read_text()
    assert recorded.count("agrees with float64") == 16 and "agrees with float64" in text
    assert html.escape(recorded.splitlines()[-1].split("by 12")[1],
                       quote=False) in text and "conv-im2col-h200.svg" in text


def test_every_link_leads_somewhere():
    parsed = {path.resolve(): Links(path) for path in SITE.rglob("*.html")}
    assert {(SITE / f"{page}.html").resolve() for page in PAGES} <= set(parsed)
    dead, outside, checked = [], set(), 0
    for path, page in parsed.items():
        for link in page.links:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme:
                outside.add(link)
                continue
            target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            checked += 1
            if not target.exists() or (parts.fragment and target in parsed
                                       and parts.fragment not in parsed[target].ids):
                dead.append((str(path.relative_to(SITE.resolve())), link))
    assert not dead
    assert checked > 500
    hosts = {urllib.parse.urlsplit(link).hostname for link in outside}
    assert hosts <= {
        "triton-lang.org", "github.com", "www.sphinx-doc.org", "readthedocs.org", "sphinx-gallery.github.io"
    }


def test_figures_have_a_text():
    assert not [(page, image) for page in PAGES for image in Links(SITE / f"{page}.html").images_without_alt]


@pytest.fixture(scope="module")
def browser():
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        assert not os.environ.get("CI"), "the explorer is tested in Chromium: apt-get install chromium"
        pytest.skip("there is no Chromium")
    from playwright.sync_api import sync_playwright
    with sync_playwright() as playwright:
        with playwright.chromium.launch(executable_path=program, args=["--no-sandbox"]) as chromium:
            yield chromium


@pytest.fixture
def page(browser):
    page = browser.new_page()
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("requestfailed", lambda request: errors.append(request.url))
    page.on("request", lambda request: request.url.startswith("file:") or errors.append(request.url))
    page.goto(PAGE.as_uri())
    yield page
    page.close()
    assert not errors


def random_settings(rng):
    """The settings of a load, as the explorer keeps them."""
    rank = rng.choice([1, 2, 2])
    many = lambda low, high: [rng.randint(low, high) for _ in range(rank)]
    lower, extent = many(-2, 1), many(1, 12)
    upper = [rng.randint(l - e + 1, max(4, l - e + 1)) for l, e in zip(lower, extent)]
    return {"rank": rank, "images": rng.randint(1, 4), "extent": extent, "lower": lower, "upper": upper, "strides": [rng.choice([1, 1, 2, rng.randint(3, 8)]) for _ in range(rank)],
            "offsets": many(0, 3), "n": rng.choice([0, 0, 0, -1, 1, 4]), "start": many(-3, 3), "pixels": rng.randint(1, 128)}  # yapf: disable


def expected_rows(s):
    shape, start = (s["images"], *s["extent"], 8), (s["n"], *s["start"])
    reads = sources(shape, s["lower"], s["upper"], s["strides"], start, s["offsets"], s["pixels"])
    bases = walk(shape, s["lower"], s["upper"], s["strides"], start)
    return [[list(base), None if read is None else list(read)] for base, read in zip(bases, reads)]


def test_the_walk_of_the_explorer(page):
    rng = random.Random(6)
    settings = [random_settings(rng) for _ in range(300)]
    found = page.evaluate(
        """settings => settings.map(s => im2colWalk({
            shape: [s.images, ...s.extent, 8], lower: s.lower, upper: s.upper, strides: s.strides,
            start: [s.n, ...s.start], offsets: s.offsets, pixels: s.pixels,
        }).map(({ base, read }) => [base, read]))""", settings)
    for s, rows in zip(settings, found):
        assert rows == expected_rows(s), s
    reads = [read for rows in found for _, read in rows]
    assert len(reads) > 10000 and 0.05 < sum(read is not None for read in reads) / len(reads) < 0.9


def rows_shown(page):
    rows = [row.split("\t") for row in page.locator("#im2col-explorer tbody").inner_text().strip().split("\n")]
    numbers = lambda text: list(json.loads(text.replace("(", "[").replace(")", "]")))
    assert [int(number) for number, _, _ in rows] == list(range(len(rows)))
    return [[numbers(base), None if read == "filled" else numbers(read)] for _, base, read in rows]


def test_what_the_explorer_shows(page):
    """Settings in the address come into the form, and the table shows the walk of the form."""
    rng = random.Random(7)
    for _ in range(12):
        s = random_settings(rng)
        page.evaluate("s => { location.hash = im2colExplorer.toHash(s); }", s)
        page.wait_for_function("rows => document.querySelectorAll('#im2col-explorer tbody tr').length === rows",
                               arg=s["pixels"])
        page.wait_for_function("s => im2colExplorer.toHash(s) === location.hash", arg=s)
        assert int(page.input_value("#im2col-extent-0")) == s["extent"][0]
        assert rows_shown(page) == expected_rows(s), s
        drawn = page.locator("#im2col-explorer svg .read").count()
        near = sum(read is not None and all(-4 <= b < e + 4
                                            for b, e in zip(base[1:], s["extent"]))
                   for base, read in expected_rows(s))
        assert drawn == near


def test_every_preset_shows_its_walk(page):
    presets = page.evaluate("im2colExplorer.presets")
    assert len(presets) >= 6
    for name, s in presets.items():
        page.select_option("#im2col-preset", name)
        assert rows_shown(page) == expected_rows(s), name


def test_the_explorer_by_keyboard(page):
    """Tab reaches every control in order, arrows change numbers, the choice and the row; out of range is said and not taken."""
    page.focus("#im2col-preset")
    page.keyboard.press("Tab")
    seen = [page.evaluate("document.activeElement.id")]
    while seen[-1] != "im2col-row":
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.id"))
        assert len(seen) < 30
    assert seen[0] == "im2col-rank" and "im2col-strides-1" in seen and "im2col-pixels" in seen
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#im2col-explorer [role=status]").startswith("Row 2: base (0, -1, 1)")
    page.focus("#im2col-strides-1")
    page.keyboard.press("ArrowUp")
    base = page.locator("#im2col-explorer tbody tr").nth(1).locator("td").nth(1).inner_text()
    assert base == "(0, -1, 1)"  # the stride in w went from 1 to 2
    before = rows_shown(page)
    page.fill("#im2col-strides-1", "9")
    assert page.inner_text("#im2col-strides-1-error") == "1 to 8" and rows_shown(page) == before
    page.focus("#im2col-preset")
    page.keyboard.press("End")
    assert page.input_value("#im2col-rank") == "1"


# Texts whose contrast with their background, by the formula of WCAG 2, is below 4.5.
FAINT = """() => {
    const numbers = color => color.match(/[0-9.]+/g).map(Number);
    const luminance = color => color.slice(0, 3).map(v => v / 255)
        .map(v => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const background = element => {
        for (let at = element; at; at = at.parentElement) {
            const color = numbers(getComputedStyle(at).backgroundColor);
            if (color.length < 4 || color[3] > 0.5) return color;
        }
        return [255, 255, 255];
    };
    const faint = {};
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const element = walker.currentNode.parentElement;
        const text = walker.currentNode.textContent.trim();
        if (!text || !element.getClientRects().length || element.closest("svg, script, style, noscript, option")) continue;
        const style = getComputedStyle(element);
        const [low, high] = [numbers(style.color), background(element)].map(luminance).sort((a, b) => a - b);
        const contrast = (high + 0.05) / (low + 0.05);
        if (contrast < 4.5) faint[`${element.tagName}.${element.className} of ${element.parentElement.className}`] = [contrast, text];
    }
    return faint;
}"""


@pytest.mark.parametrize("width, scheme", [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")])
def test_pages_are_legible(browser, width, scheme):
    """Nothing is wider than the screen, and no text fainter than WCAG asks for."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    for name in PAGES:
        page.goto((SITE / f"{name}.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        assert page.evaluate(FAINT) == {}, name
    context.close()
