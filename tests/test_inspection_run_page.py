"""The page of runs in a real Chromium: what a reader sees, points at and presses."""

import html
import os
import re

import numpy as np
import pytest
from run_files import BEGUN, start, write_run

from t2t_keras.inspection.line_chart import line_chart, ticks
from t2t_keras.inspection.run_page import run_page
from t2t_keras.inspection.runs import read_run
from tests import chromium

NOW = BEGUN + 7200
HARMFUL = '"><script>harmed=1</script><img src=x onerror=harmed=1>'


@pytest.fixture(scope="module")
def browser():
    try:
        with chromium.browser() as opened:
            yield opened
    except chromium.NoChromium as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Pages of one run and of two, whose names would do harm were they not shown as text."""
    directory = tmp_path_factory.mktemp("runs")
    small = write_run(directory / f"small {HARMFUL.replace('/', '&')}")
    seconds = {"training": 200.0, "evaluation": 300.0}
    starts = [start(BEGUN, 500, ended=HARMFUL, step=400, seconds=seconds)]
    large = write_run(directory / "large", "transformer_tiny,hidden_size=32", starts, factor=0.5)
    runs = [read_run(str(path)) for path in (small, large)]
    for name, shown in (("one", runs[:1]), ("two", runs)):
        (directory / f"{name}.html").write_text(run_page(shown, NOW), "utf-8")
    return directory


@pytest.fixture
def show(browser, pages):
    """Opens the page of one or two runs; afterwards, nothing may have gone wrong in it."""

    def opened(name, address=""):
        browser.open(pages / f"{name}.html", address)
        return browser

    yield opened
    assert not browser.events("Log.entryAdded")
    assert not browser.events("Runtime.exceptionThrown")
    requests = [event["request"]["url"] for event in browser.events("Network.requestWillBeSent")]
    assert all(url.startswith("file:") for url in requests)


def figure(title):
    return (
        "[...document.querySelectorAll('figure')].find(f => "
        f"f.querySelector('figcaption').textContent.startsWith('{title}'))"
    )


def chart(title):
    return f"[...{figure(title)}.querySelectorAll('.chart')].find(c => !c.hasAttribute('hidden'))"


def told(page, title):
    return page.evaluate(f"{figure(title)}.querySelector('.told').textContent")


def place(page, title, x, y):
    """The pixel of the window where a share x, y of the grid of a chart is, y from its top."""
    page.evaluate(f"{figure(title)}.scrollIntoView()")
    left, top, right, _ = page.box(chart(title))
    scale = (right - left) / 560
    return left + scale * (62 + x * (560 - 62 - 14)), top + scale * (10 + y * (250 - 10 - 38))


def test_has_what_the_text_has(show):
    page = show("one")
    assert page.evaluate("document.querySelector('h1').textContent").startswith("Run small")
    headings = page.evaluate("[...document.querySelectorAll('h2')].map(h => h.textContent)")
    assert headings == [
        "Overview",
        "Curves",
        "Settings that differ from transformer_tiny",
        "Time",
        "Started with",
        "Command",
        "Starts",
        "Checkpoints",
    ]
    rows = page.evaluate(
        "[...document.querySelectorAll('tr')].map(r => [...r.children].map(c => c.textContent))"
    )
    assert ["hidden_size", "128", "64"] in rows
    assert ["best BLEU on dev", "30.00 at step 400"] in rows
    assert ["training", "10:00  60%"] in rows
    assert ["400", "2.0000", "0.5000", "30.00"] in rows  # of all evaluations
    assert page.evaluate("typeof harmed") == "undefined"


def test_curves_are_drawn_where_their_points_are(show):
    """The loss falls from 8 to 1 by halves, between steps 100 and 400 of an axis from 0 to 400."""
    page = show("one", "theme=light")
    title = "loss of training"
    places = {step: (8 - loss) / 7 for step, loss in ((100, 8), (200, 4), (300, 2), (400, 1))}
    pixels = {step: place(page, title, step / 400, y) for step, y in places.items()}
    empty = place(page, title, 0.8, 0.1)
    shot = page.screenshot().astype(int)
    colour = page.evaluate(
        f"getComputedStyle({figure(title)}.querySelector('.curve')).getPropertyValue('stroke')"
    )
    assert colour.startswith("oklch(0.5 0.17 258")  # blue
    for x, y in pixels.values():
        around = shot[round(y) - 1 : round(y) + 2, round(x) - 2 : round(x) + 1].reshape(-1, 3)
        assert (around[:, 2] - around[:, 0]).max() > 100
    assert np.ptp(shot[round(empty[1]), round(empty[0])]) < 10  # no colour


def test_pointing_at_a_curve_tells_of_its_nearest_point(show):
    page = show("one")
    still = told(page, "loss on dev")
    assert still == "first 3.000 at step 200, last 2.000 at step 400, best 2.000 at step 400"
    page.point_at(*place(page, "loss on dev", 0.6, 0.5))
    assert told(page, "loss on dev") == "3.000 at step 200"
    cursor = f"getComputedStyle({chart('loss on dev')}.querySelector('.cursor')).visibility"
    assert page.evaluate(cursor) == "visible"
    page.point_at(*place(page, "loss on dev", 0.9, 0.5))
    assert told(page, "loss on dev") == "2.000 at step 400"
    page.point_at(1, 1)
    assert told(page, "loss on dev") == still
    assert page.evaluate(cursor) == "hidden"


def test_two_runs_share_their_grids(show):
    page = show("two")
    legend = page.evaluate("[...document.querySelectorAll('.legend li')].map(e => e.textContent)")
    assert legend[1] == "large"
    page.point_at(*place(page, "BLEU on dev", 1, 0.5))
    assert told(page, "BLEU on dev") == f"{legend[0]}: 30.00 at step 400; large: 30.00 at step 400"
    strokes = page.evaluate(
        f"[...{chart('loss of training')}.querySelectorAll('.curve')]"
        ".map(c => getComputedStyle(c).stroke)"
    )
    assert len({*strokes}) == 2


def test_keys_go_from_point_to_point(show):
    page = show("two")
    page.evaluate(f"{chart('learning rate')}.focus()")
    steps = []
    for key, code in (("ArrowRight", 39), ("ArrowRight", 39), ("End", 35), ("ArrowLeft", 37)):
        page.press(key, code)
        steps.append(re.findall(r"at step (\d+)", told(page, "learning rate")))
    assert steps == [["100"] * 2, ["200"] * 2, ["400"] * 2, ["300"] * 2]
    page.press("Escape", 27)
    assert "first" in told(page, "learning rate")


def test_curves_can_be_seen_by_hours(show):
    """A point every 250 s, so that 400 steps take 1000 s."""
    page = show("one")
    page.click("document.querySelector('[value=hours]').parentElement")
    assert page.evaluate("location.hash") == "#axis=hours"
    assert page.evaluate(f"Number({chart('BLEU')}.dataset.high)") == pytest.approx(1000 / 3600)
    page.point_at(*place(page, "BLEU", 0.5, 0.5))
    assert told(page, "BLEU") == "10.00 at step 200"
    assert page.evaluate("document.querySelectorAll('.chart:not([hidden])').length") == (
        page.evaluate("document.querySelectorAll('figure').length")
    )


def test_is_light_or_dark_as_the_system_or_as_is_chosen(show):
    page = show("one", "theme=dark")
    assert page.screenshot()[2, 2].mean() < 60
    for scheme, mean in (("light", 230), ("dark", 60)):
        page.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        page = show("one")
        assert (page.screenshot()[2, 2].mean() > mean) == (scheme == "light")
    page.call("Emulation.setEmulatedMedia", features=[])


def test_bars_show_the_shares_of_time(show):
    page = show("two")
    bars = page.evaluate(
        "[...document.querySelectorAll('.bar')].map(b => [b.getAttribute('aria-label'),"
        " [...b.children].map(r => Number(r.getAttribute('width')))])"
    )
    assert bars[1] == ["training 40%, evaluation 60%, all else 0%", [40, 60, 0]]
    assert sum(bars[0][1]) == pytest.approx(100, abs=0.01)


def test_fits_a_narrow_window(show):
    page = show("two")
    page.size(360, 700)
    try:
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
    finally:
        page.size(1280, 1000)


# Without a browser


def test_pictures_say_what_they_show(pages):
    text = (pages / "two.html").read_text("utf-8")
    described = [html.unescape(words) for words in re.findall(r'aria-label="([^"]*)"', text)]
    first = f"loss of training, nats a target token; small {HARMFUL.replace('/', '&')}: first 8.000"
    assert described[0].startswith(first)
    assert "<img src=x" not in text


def test_a_run_without_curves_has_a_page(tmp_path):
    run = write_run(tmp_path)
    for name in os.listdir(run):
        if name.startswith(("events", "evaluations")):
            os.remove(run / name)
    page = run_page([read_run(str(run))], NOW)
    assert "<figure" not in page and "model.ckpt-400" in page


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 250000, [0, 50000, 100000, 150000, 200000, 250000]),
        (1.07, 8.2, [2, 4, 6, 8]),
        (-0.1, 0.1, [-0.1, -0.05, 0, 0.05, 0.1]),
        (3e-7, 9e-4, [0.0002, 0.0004, 0.0006, 0.0008]),
    ],
)
def test_axes_have_round_numbers(low, high, expected):
    assert ticks(low, high) == pytest.approx(expected)


def test_draws_points_by_hand():
    drawn = line_chart([[(0, 1.0), (2, 3.0), (4, float("nan"))], []], ".1f", "steps", "a < b")
    assert '<path class="curve run-0" d="M62 212L546 10"/>' in drawn
    assert drawn.count("<circle") == 2
    assert 'aria-label="a &lt; b"' in drawn
    assert line_chart([[(1, float("inf"))]], ".1f", "steps", "none") == ""
    assert 'data-low="0" data-high="1"' in line_chart([[(1, 5.0)]], ".1f", "steps", "a point")
