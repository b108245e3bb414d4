"""The page of attention in a real Chromium: what a reader sees, points at and presses."""

import re
import time

import numpy as np
import pytest

from t2t_keras.inspection.attention_page import attention_page
from tests import chromium

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
TAB, ENTER, ESCAPE, RIGHT, DOWN = (
    ("Tab", 9),
    ("Enter", 13, "\r"),
    ("Escape", 27),
    ("ArrowRight", 39),
    ("ArrowDown", 40),
)


def side(tokens, word_texts):
    return {
        "text": " ".join(word_texts[:-1]),
        "tokens": tokens,
        "words": WORDS,
        "word_texts": word_texts,
    }


def sharp_heads():
    """[3, 5, 5]: each token at itself, each at the first, each at the second and third by halves."""
    first, halves = np.zeros((5, 5)), np.zeros((5, 5))
    first[:, 0] = 1
    halves[:, 1:3] = 0.5
    return np.stack([np.eye(5), first, halves])


def blurred_heads():
    """[3, 5, 5]: whole words have other weights than their tokens."""
    heads = np.full((3, 5, 5), 0.2)
    heads[0, 1] = [0.6, 0.1, 0.1, 0.2, 0]
    heads[0, 2] = [0.2, 0.3, 0.4, 0.1, 0]
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


@pytest.fixture(scope="module")
def page():
    with chromium.browser() as opened:
        yield opened


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


def colour_of_head(page, shot, head):
    """Returns the colour at the bottom edge of its button."""
    left, _, right, bottom = page.box(choice("heads", head))
    return shot[round(bottom) - 2, round((left + right) / 2)].astype(int)


def places(page, x):
    """Returns the heights y [query, key] at which lines pass at the share x of the way, and that column of pixels."""
    rows = [
        np.array([page.middle(word(name, i))[1] for i in range(5)]) for name in ("queries", "keys")
    ]
    left, _, right, _ = page.box("document.querySelector('#picture')")
    return rows[0][:, None] * (1 - x) + rows[1] * x, round(left + x * (right - left))


def strongest(shot, column, y):
    """The pixel near a place that differs most from the paper."""
    near = shot[round(y) - 2 : round(y) + 3, column].astype(int)
    return near[np.abs(near - shot[2, 2]).sum(1).argmax()]


# What is drawn


@pytest.mark.parametrize("head, theme", [(0, "light"), (1, "light"), (2, "light"), (2, "dark")])
def test_lines_are_where_weights_are_and_as_opaque_as_these(show, head, theme):
    page = show(sample(), f"attention=encoder&text=subwords&layer=1&heads={head}&theme={theme}")
    shot = page.screenshot()
    paper, colour = shot[2, 2].astype(int), colour_of_head(page, shot, head)
    assert (paper.mean() < 60) == (theme == "dark")
    assert np.ptp(colour) > 60  # no grey
    weights = sharp_heads()[head]
    y, column = places(page, 0.4)
    drawn, empty = y[weights > 0], 0
    for q, k in np.ndindex(5, 5):
        seen = strongest(shot, column, y[q, k])
        if weights[q, k]:
            wanted = paper + weights[q, k] * (colour - paper)
            assert np.abs(seen - wanted).max() <= 12, (q, k)
        elif np.abs(drawn - y[q, k]).min() > 4:
            assert (seen == paper).all(), (q, k)
            empty += 1
    assert empty >= 8


def test_heads_that_are_not_chosen_are_not_drawn(show):
    page = show(sample(), "attention=encoder&text=subwords&layer=1")
    page.click(choice("heads", 1))
    page.click(choice("heads", 2))
    page.point_at(1, 1)
    shot = page.screenshot()
    y, column = places(page, 0.4)
    assert (strongest(shot, column, y[4, 0]) == shot[2, 2]).all()
    assert (strongest(shot, column, y[4, 4]) != shot[2, 2]).any()
    assert page.evaluate("location.hash").split("&")[2] == "heads=0"
    assert texts(page, "#heads button") == ["all", "none"]
    page.click("document.querySelector('#heads button:last-child')")
    page.point_at(1, 1)
    shot = page.screenshot()
    assert all((strongest(shot, column, y[q, q]) == shot[2, 2]).all() for q in range(5))


def test_pointing_at_a_word_shows_its_lines_alone(show):
    page = show(sample(), "attention=encoder&text=subwords&layer=1&heads=0,1")
    before = page.screenshot()
    page.point_at(*page.middle(word("queries", 4)))
    shot = page.screenshot()
    paper = shot[2, 2]
    y, column = places(page, 0.4)
    assert (strongest(shot, column, y[4, 0]) != paper).any()
    assert (strongest(shot, column, y[4, 4]) != paper).any()
    for query in range(4):
        assert (strongest(before, column, y[query, query]) != paper).any()
        assert (strongest(shot, column, y[query, query]) == paper).all()
    assert summary(page) == "“</s>” looks at the 0.50, </s> 0.50 (layer 1, mean of the heads shown)"
    assert numbers(page) == {"the": [0.5, 0, 1], "</s>": [0.5, 1, 0]} | {
        token: [0, 0, 0] for token in SOURCE[1:4]
    }
    _, top, right, bottom = map(round, page.box(word("keys", 0)))
    band = shot[(top + bottom) // 2, right - 6].astype(int)  # the second half is head 1's
    assert np.abs(band - paper).max() > 60
    page.point_at(1, 1)
    assert np.array_equal(page.screenshot(), before)


def test_pointing_at_a_word_that_is_looked_at_shows_who_looks(show):
    page = show(sample(), "attention=encoder&text=subwords&layer=1&heads=1")
    page.point_at(*page.middle(word("keys", 0)))
    assert summary(page) == "“the” is looked at by the 1.00, cat 1.00, s 1.00 (layer 1, head 1)"
    page.point_at(*page.middle(word("keys", 1)))
    assert summary(page) == "“cat” is looked at by nothing (layer 1, head 1)"


def test_whole_words_are_the_sum_of_keys_and_the_mean_of_queries(show):
    page = show(sample(), "attention=encoder&layer=0&heads=0&word=1")
    assert texts(page, "#queries bdi") == ["the", "cats", "sleep", "</s>"]
    by_hand = {  # cat and s look at "the" with 0.6 and 0.2, at cat and s with 0.1 + 0.1 and 0.3 + 0.4
        "the": [0.4, 0.4],
        "cats": [0.45, 0.45],
        "sleep": [0.15, 0.15],
        "</s>": [0, 0],
    }
    assert numbers(page) == by_hand
    page.click(choice("units", "subwords"))
    assert texts(page, "#queries bdi") == SOURCE
    page.click(word("queries", 1))
    assert [row[0] for row in numbers(page).values()] == [0.6, 0.2, 0.1, 0.1, 0]


def test_kinds_and_layers_can_be_chosen(show):
    page = show(sample(), "text=subwords&heads=0")
    assert texts(page, "#attention-title") == ["Encoder-decoder attention, layer 1"]
    assert texts(page, "#queries bdi") == TARGET and texts(page, "#keys bdi") == SOURCE
    page.point_at(*page.middle(word("queries", 0)))
    assert summary(page).startswith("“die” looks at </s> 1.00 (layer 1")
    page.click(choice("layers", 0))
    page.point_at(*page.middle(word("queries", 0)))
    assert summary(page).startswith("“die” looks at the 1.00 (layer 0")
    page.click(choice("kinds", "decoder"))
    page.point_at(*page.middle(word("queries", 2)))
    assert texts(page, "#keys bdi") == TARGET and summary(page).startswith(
        "“zen” looks at kat 1.00"
    )
    assert texts(page, "#attention-title") == ["Decoder attention, layer 0"]
    assert page.evaluate("location.hash") == (
        "#attention=decoder&layer=0&heads=0&text=subwords&view=lines"
    )


def test_small_pictures_choose_a_head_of_a_layer(show):
    page = show(sample(), "attention=encoder&text=subwords")
    assert page.evaluate("document.querySelectorAll('#overview button').length") == 6
    page.click("document.querySelector('[aria-label=\"layer 1, head 2\"]')")
    page.point_at(*page.middle(word("queries", 0)))
    assert summary(page) == "“the” looks at cat 0.50, s 0.50 (layer 1, head 2)"


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
    page = show(sample())
    shade = page.screenshot()[2, 2].mean()
    assert shade > 240
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    page.call("Emulation.setEmulatedMedia", features=dark)
    page.drawn()
    assert page.screenshot()[2, 2].mean() < 60
    page.evaluate(
        "(s => { s.value = 'light'; s.dispatchEvent(new Event('change')); })(document.querySelector('#theme'))"
    )
    page.drawn()
    assert page.screenshot()[2, 2].mean() == shade


# Who uses it


def test_keyboard_reaches_words_and_shows_where_it_is(show):
    page = show(sample(), "attention=encoder&text=subwords&layer=1&heads=0")
    page.evaluate("document.querySelector('#heads button:last-child').focus()")
    page.press(*TAB)
    assert summary(page) == "“the” looks at the 1.00 (layer 1, head 0)"
    page.press(*DOWN)
    assert summary(page).startswith("“cat” looks at cat")
    ring = "getComputedStyle(document.activeElement).outline"
    assert "solid 2px" in page.evaluate(ring)
    page.press(*RIGHT)
    assert summary(page).startswith("“cat” is looked at by cat")
    page.press(*ENTER)
    page.evaluate("document.activeElement.blur()")
    page.drawn()
    assert summary(page).startswith("“cat” is looked at by cat")
    assert page.evaluate(f"{word('keys', 1)}.getAttribute('aria-pressed')") == "true"
    assert page.evaluate("location.hash").endswith("looked-at=1")
    page.press(*ESCAPE)
    assert summary(page) == "Choose a word to see its weights."


def test_everything_that_can_be_used_has_a_name(show):
    page = show(sample(tree=TREE), "word=0")
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    named = {
        role: [n.get("name", {}).get("value", "") for n in nodes if n["role"]["value"] == role]
        for role in ("button", "radio", "checkbox", "combobox", "table", "status", "image")
    }
    for role in ("button", "radio", "checkbox", "combobox", "image"):
        assert named[role] and all(named[role]), role
    assert "katzen" in named["button"] and "layer 0, head 2" in named["button"]
    assert "head 1" in named["checkbox"]
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


# Tree


def test_parse_tree_is_drawn(show):
    page = show(sample(tree=TREE))
    placed = page.evaluate(
        "[...document.querySelectorAll('#tree text')].map(t => [t.textContent, +t.getAttribute('x'), +t.getAttribute('y')])"
    )
    x, y = ({name: place[i] for name, *place in placed} for i in (0, 1))
    assert x["the"] == x["DT"] < x["cats"] == x["NNS"] < x["sleep"]
    assert x["NP"] == pytest.approx((x["DT"] + x["NNS"]) / 2)
    assert y["TOP"] < y["S"] < y["NP"] == y["VP"] < y["DT"] < y["the"] == y["cats"] == y["sleep"]
    assert texts(page, "#tree code") == [TREE]
    assert len(texts(page, "#tree line")) == 9
    scroller = "document.querySelector('#tree .scroll')"
    for left, cue in ((0, "scroll cut-right"), (999, "scroll cut-left")):
        page.size(160, 740)
        page.evaluate(f"{scroller}.scrollLeft = {left}")
        page.drawn()
        assert page.evaluate(f"{scroller}.className") == cue


# Size


@pytest.mark.parametrize("layers, length", [(6, 60), (1, 256)])
def test_long_sentences_and_many_heads_are_quick(show, layers, length):
    rng = np.random.default_rng(1)
    logits = 2 * rng.standard_normal((layers, 8, length, length))
    weights = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    tokens = [f"word{i}" for i in range(length)]
    one = {"text": "", "tokens": tokens, "words": list(range(length)), "word_texts": tokens}
    attention = {"encoder": weights.round(4).tolist()}
    data = sample(source=one, target=one, attention=attention)
    begun = time.monotonic()
    page = show(data)
    page.drawn()
    assert time.monotonic() - begun < 5
    hovers = []
    for i in range(9):
        x, y = page.middle(word("queries", i))
        begun = time.monotonic()
        page.point_at(x, y)
        hovers.append(time.monotonic() - begun)
        greatest = weights[-1, :, i].mean(0).argmax()
        assert summary(page).startswith(f"“word{i}” looks at word{greatest} ")
    assert np.median(hovers) < 0.75  # two frames, and what was drawn in them
