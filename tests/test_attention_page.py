"""The page of attention in a real Chromium: what a reader sees, points at and presses."""

import base64
import contextlib
import io
import itertools
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from t2t_keras.inspection.attention_page import attention_page

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# It does not start for root otherwise; the pages are our own.
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--hide-scrollbars"]
QT = """
from PySide6.QtWebEngineWidgets import QWebEngineView
from PySide6.QtWidgets import QApplication

application = QApplication([])
view = QWebEngineView()
view.setUrl("about:blank")
view.show()
application.exec()
"""  # Starts the Chromium of Qt WebEngine, a package of pip's.
SECONDS = 60  # the most that anything may take


@pytest.fixture(scope="module")
def page():
    """The `Page` of a Chromium without a window: the system's if there is one, or else Qt's."""
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    flags = [*FLAGS, f"--remote-debugging-port={port}"]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        environment = {**os.environ, "TMPDIR": profile}
        command = [found, *flags, "--headless", f"--user-data-dir={profile}", "about:blank"]
        if not found:
            command = [sys.executable, "-c", QT]
            environment |= {"HOME": profile, "QT_QPA_PLATFORM": "offscreen"}
            environment["QTWEBENGINE_CHROMIUM_FLAGS"] = " ".join(flags)
        log = Path(profile) / "log"
        with open(log, "wb") as file:
            process = subprocess.Popen(command, env=environment, stdout=file, stderr=file)
        try:
            with contextlib.closing(Page(address_of_page(process, port, log))) as opened:
                yield opened
        finally:
            process.terminate()
            process.wait(SECONDS)


def address_of_page(process, port, log):
    """Asks a starting browser for its page until it answers."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    until = time.monotonic() + SECONDS
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), direct.open(f"http://127.0.0.1:{port}/json") as answer:
            for target in json.load(answer):
                if target["type"] == "page":
                    return target["webSocketDebuggerUrl"]
        time.sleep(0.05)
    said = log.read_text(errors="replace")
    missing = re.search(r"(Import|ModuleNotFound)Error: .*", said)
    if missing:  # the package, or a library of the system that it needs
        pytest.skip(f"set CHROMIUM or pip install pyside6-webengine ({missing[0]})")
    raise RuntimeError(f"Chromium did not start: {said[-2000:]}")


class Page:
    """A page in Chromium, driven by its DevTools protocol; what it asked for and what went wrong in it."""

    def __init__(self, address):
        import websocket

        self._socket = websocket.create_connection(address, timeout=SECONDS, suppress_origin=True)
        self.close = self._socket.close
        self._numbers = itertools.count(1)
        self._events = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)

    def call(self, method, **arguments):
        """Calls a method of the protocol and returns its result."""
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": arguments}))
        while True:
            answer = json.loads(self._socket.recv())
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self._events.append(answer)

    def events(self, method):
        """The parameters of all events of a kind since the page was opened."""
        return [event["params"] for event in self._events if event.get("method") == method]

    def open(self, path, address=""):
        """Opens an HTML file, with what stands behind # in its address, as new."""
        self.call("Page.navigate", url="about:blank")
        self._events.clear()
        self.call("Page.navigate", url=f"{Path(path).as_uri()}#{address}")
        until = time.monotonic() + SECONDS
        while self.evaluate("location.protocol + document.readyState") != "file:complete":
            assert time.monotonic() < until
            time.sleep(0.01)

    def size(self, width, height, mobile=False):
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)

    def evaluate(self, expression):
        """The value of a JavaScript expression."""
        how = {"returnByValue": True, "awaitPromise": True}
        result = self.call("Runtime.evaluate", expression=expression, **how)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def drawn(self):
        """Waits until what was asked for has been drawn."""
        frame = "requestAnimationFrame"
        self.evaluate(f"new Promise(done => {frame}(() => {frame}(done)))")

    def box(self, expression):
        """left, top, right, bottom of an element in the window, in pixels."""
        return self.evaluate(
            f"(() => {{ const b = ({expression}).getBoundingClientRect();"
            " return [b.left, b.top, b.right, b.bottom]; })()"
        )

    def middle(self, expression):
        left, top, right, bottom = self.box(expression)
        return (left + right) / 2, (top + bottom) / 2

    def point_at(self, x, y):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self.drawn()

    def click(self, expression):
        x, y = self.middle(expression)
        self.point_at(x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.drawn()

    def press(self, key, code, text=""):
        """Presses a key: its name, its Windows virtual key code and what it types."""
        names = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        for kind, typed in (("keyDown", text), ("keyUp", "")):
            self.call("Input.dispatchKeyEvent", type=kind, text=typed, **names)
        self.drawn()

    def screenshot(self):
        """Returns the window's picture, [height, width, 3]."""
        from PIL import Image

        data = self.call("Page.captureScreenshot", format="png")["data"]
        return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB"), int)


SOURCE = ["the", "cat", "s", "sleep", "</s>"]
TARGET = ["die", "kat", "zen", "schlafen", "</s>"]
WORDS = [0, 1, 1, 2, 3]
HARMFUL = [
    "</script><script>harmed = 1</script>",
    "<img src=x onerror=harmed=1>",
    "<!--<script>",
    "&lt;b&gt; & \u2028 \"'`${harmed=1}$title",
    "</script x",
]
TREE = "(TOP (S (NP (DT the) (NNS cats)) (VP (VBP sleep))))"


def side(tokens, word_texts):
    texts = {"text": " ".join(word_texts[:-1]), "word_texts": word_texts}
    return {"tokens": tokens, "words": WORDS, **texts}


def sharp_heads():
    """[3, 5, 5]: each token at itself, each at the first, each at the second and third by halves."""
    first, halves = np.eye(5)[[0] * 5], np.tile([0, 0.5, 0.5, 0, 0], (5, 1))
    return np.stack([np.eye(5), first, halves])


def blurred_heads():
    """[3, 5, 5]: whole words have other weights than their tokens."""
    heads = np.full((3, 5, 5), 0.2)
    heads[0, 1:3] = [[0.6, 0.1, 0.1, 0.2, 0], [0.2, 0.3, 0.4, 0.1, 0]]
    return heads


def sample(**changes):
    causal = np.broadcast_to(np.eye(5)[[0, 0, 1, 2, 3]], (2, 3, 5, 5))
    return {
        "title": "a model",
        "source": side(SOURCE, ["the", "cats", "sleep", "</s>"]),
        "target": side(TARGET, ["die", "katzen", "schlafen", "</s>"]),
        "attention": {
            "encoder": np.stack([blurred_heads(), sharp_heads()]).tolist(),
            "decoder": causal.tolist(),
            "encdec": np.stack([sharp_heads(), sharp_heads()[:, ::-1]]).tolist(),
        },
        "tree": None,
    } | changes


@pytest.fixture
def show(page, tmp_path):
    """Opens the page of some data in the browser, and holds that nothing goes wrong in it."""

    def show(data, address=""):
        path = tmp_path / "page.html"
        path.write_text(attention_page(data), "utf-8")
        page.open(path, address)
        return page

    page.size(1280, 1000)
    page.call("Emulation.setEmulatedMedia", features=[])
    page.point_at(1, 1)
    yield show
    assert not page.events("Runtime.exceptionThrown")
    assert not page.events("Log.entryAdded")  # such as what the page's policy refused
    asked = {event["request"]["url"] for event in page.events("Network.requestWillBeSent")}
    assert {url.split("#")[0] for url in asked} <= {(tmp_path / "page.html").as_uri()}


def word(side_of_page, number):
    return f"document.querySelectorAll('#{side_of_page} button')[{number}]"


def choice(group, value):
    return f"document.querySelector('#{group} input[value=\"{value}\"]').parentElement"


def small_picture(head):
    return f"document.querySelector('[aria-label=\"layer 1, head {head}\"]')"


def texts(page, selector):
    return page.evaluate(f"[...document.querySelectorAll('{selector}')].map(e => e.textContent)")


def summary(page):
    return page.evaluate("document.querySelector('#summary').textContent")


def numbers(page):
    """The table of the word in focus: token -> mean and the weight of every head."""
    rows = page.evaluate(
        "[...document.querySelectorAll('#table tbody tr')].map(row => ["
        "row.querySelector('bdi').textContent, ...[...row.querySelectorAll('td')].map(c => c.textContent)])"
    )
    return {name: [float(number) for number in row] for name, *row in rows}


def lines(page):
    """The colours of the picture where the lines pass at a sixth of their way, [query, key, 3].

    There no two of the lines are at the same height. The colours are differences from the paper's.
    """
    shot = page.screenshot()
    paper = shot[2, 2]
    left, _, right, _ = page.box("document.querySelector('#picture')")
    column = round(left + (right - left) / 6)
    colours = np.empty((5, 5, 3))
    for q, k in np.ndindex(5, 5):
        y = page.middle(word("queries", q))[1] * 5 / 6 + page.middle(word("keys", k))[1] / 6
        near = shot[round(y) - 1 : round(y) + 2, column]
        colours[q, k] = near[np.abs(near - paper).sum(1).argmax()]
    return colours - paper


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_lines_of_the_chosen_heads_are_where_weights_are_and_as_opaque(show, theme):
    address = f"attention=encoder&text=subwords&layer=1&theme={theme}"
    assert not lines(show(sample(), address + "&heads=")).any()
    page = show(sample(), address)
    assert texts(page, "#heads button") == ["all", "none"]
    for head, weights in enumerate(sharp_heads()):
        page.click("document.querySelector('#heads button:last-child')")
        page.point_at(1, 1)
        assert not lines(page).any()
        page.click(choice("heads", head))
        page.point_at(1, 1)
        assert page.evaluate("location.hash").split("&")[2] == f"heads={head}"
        shot = page.screenshot()
        left, _, right, bottom = page.box(choice("heads", head))
        colour = shot[round(bottom) - 2, round((left + right) / 2)]  # its button's edge
        assert np.ptp(colour) > 60  # no grey
        assert (shot[2, 2].mean() < 60) == (theme == "dark")
        wanted = weights[..., None] * (colour - shot[2, 2])
        np.testing.assert_allclose(lines(page), wanted, atol=12)


def test_pointing_at_a_word_shows_its_lines_alone(show):
    page = show(sample(), "attention=encoder&text=subwords&layer=1&heads=0,1")
    before = page.screenshot()
    page.point_at(*page.middle(word("queries", 4)))
    drawn = lines(page).any(-1)
    assert drawn[4].tolist() == [True, False, False, False, True] and not drawn[:4].any()
    assert summary(page) == "“</s>” looks at the 0.50, </s> 0.50 (layer 1, mean of the heads shown)"
    assert numbers(page) == {"the": [0.5, 0, 1], "</s>": [0.5, 1, 0]} | {
        token: [0, 0, 0] for token in SOURCE[1:4]
    }
    shot = page.screenshot()
    _, top, right, bottom = map(round, page.box(word("keys", 0)))
    band = shot[(top + bottom) // 2, right - 6]  # the second half is head 1's
    assert np.abs(band - shot[2, 2]).max() > 60
    page.point_at(1, 1)
    assert np.array_equal(page.screenshot(), before)


def test_choices_show_other_weights(show):
    """Words, kinds, layers and heads that are chosen, and what the address then says."""
    page = show(sample(), "attention=encoder&layer=0&heads=0&word=1")
    assert texts(page, "#queries bdi") == ["the", "cats", "sleep", "</s>"]
    # cat and s look at "the" with 0.6 and 0.2, at cat and s with 0.1 + 0.1 and 0.3 + 0.4
    by_hand = {"the": 0.4, "cats": 0.45, "sleep": 0.15, "</s>": 0}
    assert numbers(page) == {name: [weight] * 2 for name, weight in by_hand.items()}
    page.click(choice("units", "subwords"))
    page.click(word("queries", 1))
    assert [row[0] for row in numbers(page).values()] == [0.6, 0.2, 0.1, 0.1, 0]
    for chosen, side_of_page, number, told in [
        (choice("kinds", "encdec"), "queries", 0, "“die” looks at the 1.00 (layer 0, head 0)"),
        (choice("layers", 1), "queries", 0, "“die” looks at </s> 1.00 (layer 1, head 0)"),
        (choice("kinds", "decoder"), "queries", 2, "“zen” looks at kat 1.00 (layer 1, head 0)"),
        (choice("kinds", "encoder"), "keys", 1, "“cat” is looked at by cat 1.00 (layer 1, head 0)"),
        (small_picture(2), "queries", 0, "“the” looks at cat 0.50, s 0.50 (layer 1, head 2)"),
        (small_picture(1), "keys", 1, "“cat” is looked at by nothing (layer 1, head 1)"),
    ]:
        page.point_at(1, 1)  # away from the word, whose numbers move what is below them
        page.click(chosen)
        page.point_at(*page.middle(word(side_of_page, number)))
        assert summary(page) == told
    assert len(texts(page, "#overview button")) == 6
    page.point_at(1, 1)
    page.click(choice("kinds", "encdec"))
    assert texts(page, "#attention-title") == ["Encoder-decoder attention, layer 1"]
    assert texts(page, "#queries bdi") == TARGET and texts(page, "#keys bdi") == SOURCE
    address = page.evaluate("location.hash")
    assert address.startswith("#attention=encdec&layer=1&heads=1&text=subwords&view=lines")


def test_heat_map_is_dark_where_weights_are(show):
    page = show(sample(), "attention=encoder&text=subwords&layer=1&heads=0&view=heat-map")
    shot = page.screenshot()
    left, _, right, _ = page.box("document.querySelector('#picture')")
    for q, k in np.ndindex(5, 5):
        y = page.middle(word("queries", q))[1]
        seen = shot[round(y), round(left + (k + 0.5) / 5 * (right - left))]
        assert (seen == shot[2, 2]).all() == (q != k)
    page.point_at(left + 5, page.middle(word("queries", 3))[1])
    assert summary(page) == "“sleep” looks at sleep 1.00 (layer 1, head 0)"


def test_colours_follow_the_system_and_the_switch(show):
    def shade():
        page.drawn()
        return page.screenshot()[2, 2].mean()

    page = show(sample())
    assert shade() > 240
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    page.call("Emulation.setEmulatedMedia", features=dark)
    assert shade() < 60
    switch = "document.querySelector('#theme')"
    page.evaluate(f"{switch}.value = 'light', {switch}.dispatchEvent(new Event('change'))")
    assert shade() > 240


def test_keyboard_reaches_words_and_shows_where_it_is(show):
    page = show(sample(), "attention=encoder&text=subwords&layer=1&heads=0")
    page.evaluate("document.querySelector('#heads button:last-child').focus()")
    for key, code, told in [
        ("Tab", 9, "“the” looks at the 1.00 (layer 1, head 0)"),
        ("ArrowDown", 40, "“cat” looks at cat 1.00 (layer 1, head 0)"),
        ("ArrowRight", 39, "“cat” is looked at by cat 1.00 (layer 1, head 0)"),
    ]:
        page.press(key, code)
        assert summary(page) == told
        assert "solid 2px" in page.evaluate("getComputedStyle(document.activeElement).outline")
    page.press("Enter", 13, "\r")
    page.evaluate("document.activeElement.blur()")
    page.drawn()
    assert summary(page) == told
    assert page.evaluate(f"{word('keys', 1)}.getAttribute('aria-pressed')") == "true"
    assert page.evaluate("location.hash").endswith("looked-at=1")
    page.press("Escape", 27)
    assert summary(page) == "Choose a word to see its weights."


def test_everything_that_can_be_used_has_a_name(show):
    page = show(sample(tree=TREE), "word=0")
    named = {}
    for node in page.call("Accessibility.getFullAXTree")["nodes"]:
        named.setdefault(node["role"]["value"], []).append(node.get("name", {}).get("value", ""))
    for role in ("button", "radio", "checkbox", "combobox", "image"):
        assert all(named[role]), role
    assert {"katzen", "layer 0, head 2"} <= {*named["button"]} and "head 1" in named["checkbox"]
    assert len(named["table"]) == 2  # numbers, heads


def test_fits_a_phone(show):
    data = sample(tree=TREE)
    data["source"] = side([*SOURCE[:3], "long" * 99, "</s>"], ["the", "cats", "long" * 99, "</s>"])
    page = show(data)
    page.size(360, 740, mobile=True)
    page.drawn()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    left, _, right, _ = page.box("document.querySelector('#picture')")
    assert 0 < left < right - 80 < right < 360
    page.evaluate(f"{word('queries', 1)}.scrollIntoView({{block: 'center'}})")
    page.click(word("queries", 1))
    assert summary(page).startswith("“katzen” looks at")
    _, top, _, bottom = page.box("document.querySelector('#summary')")
    assert 0 < top < bottom < 740  # the numbers are in sight


def test_text_of_users_stays_text(show):
    data = sample(title=HARMFUL[0], tree=f"(S {HARMFUL[1].replace(' ', '')} {HARMFUL[2]})")
    data["source"] = side(HARMFUL, HARMFUL[:4])
    page = show(data, "attention=encoder&text=subwords&word=0")
    assert page.evaluate("typeof harmed") == "undefined"
    assert page.evaluate("document.querySelectorAll('img').length") == 0
    assert page.evaluate("document.scripts.length") == 2
    assert texts(page, "#queries bdi") == texts(page, "#keys bdi") == HARMFUL
    assert texts(page, "h1") == [page.evaluate("document.title")] == [f"Attention: {HARMFUL[0]}"]
    assert HARMFUL[2] in texts(page, "#tree text")


def test_page_names_no_other_file_and_forbids_itself_any():
    html = attention_page(sample(tree=TREE))
    assert not re.search(r"""\s(src|href)=|@import|url\(|fetch\(|XMLHttpRequest|WebSocket""", html)
    assert "default-src 'none'" in html


def test_weights_of_other_tokens_are_refused():
    data = sample()
    data["attention"]["encdec"][1][2][4].pop()
    with pytest.raises(ValueError, match="'encdec' is not of 5 x 5 tokens"):
        attention_page(data)


def test_parse_tree_is_drawn(show):
    page = show(sample(tree=TREE))
    x, y = page.evaluate(
        "['x', 'y'].map(axis => Object.fromEntries([...document.querySelectorAll('#tree text')]"
        ".map(text => [text.textContent, +text.getAttribute(axis)])))"
    )
    assert x["the"] == x["DT"] < x["cats"] == x["NNS"] < x["sleep"]
    assert x["NP"] == pytest.approx((x["DT"] + x["NNS"]) / 2)
    assert y["TOP"] < y["S"] < y["NP"] == y["VP"] < y["DT"] < y["the"] == y["cats"] == y["sleep"]
    assert texts(page, "#tree code") == [TREE]
    assert len(texts(page, "#tree line")) == 9
    scroller = "document.querySelector('#tree .scroll')"
    for left, cue in ((0, "scroll cut-right"), (999, "scroll cut-left")):
        page.size(90, 740)
        page.evaluate(f"{scroller}.scrollLeft = {left}")
        page.drawn()
        assert page.evaluate(f"{scroller}.className") == cue


@pytest.mark.parametrize("layers, length", [(6, 60), (1, 256)])
def test_long_sentences_and_many_heads_are_shown(show, layers, length):
    weights = np.random.default_rng(1).dirichlet(np.full(length, 0.3), (layers, 8, length))
    tokens = [f"word{i}" for i in range(length)]
    one = {"text": "", "tokens": tokens, "words": list(range(length)), "word_texts": tokens}
    page = show(sample(source=one, target=one, attention={"encoder": weights.round(4).tolist()}))
    page.drawn()
    for i, greatest in enumerate(weights[-1, :, :9].mean(0).argmax(-1)):
        page.point_at(*page.middle(word("queries", i)))
        assert summary(page).startswith(f"“word{i}” looks at word{greatest} ")
