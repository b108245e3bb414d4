"""Figures of attention: the lines are where the weights are, and as strong."""

import numpy as np
import pytest

from t2t_keras.errors import UserError
from t2t_keras.inspection.attention import AttentionData
from t2t_keras.inspection.attention_figure import (
    attention_figure,
    require_figure,
    save_figure,
)
from t2t_keras.inspection.tokens import Tokens

colors = pytest.importorskip("matplotlib.colors")

SOURCE = Tokens("big $dog", ["big", "$dog", "</s>"], [0, 1, 2], ["big", "$dog", "</s>"])
TARGET = Tokens("Hund", ["Hund", "</s>"], [0, 1], ["Hund", "</s>"])


@pytest.fixture(scope="module")
def data():
    random = np.random.default_rng(0)

    def weights(queries, keys):
        drawn = random.dirichlet(np.ones(keys), (2, 3, queries))  # two layers of three heads
        return drawn.astype(np.float32)

    return AttentionData("toy", SOURCE, TARGET, weights(3, 3), weights(2, 2), weights(2, 3))


def lines(axes):
    """(query, key) of each line, from where it begins and ends, and its strength."""
    return {
        (round(query), round(key)): alpha
        for drawn in axes.collections
        for ((_, query), (_, key)), alpha in zip(
            drawn.get_segments(), drawn.get_alpha(), strict=True
        )
    }


def test_a_head_has_a_picture_with_a_line_for_every_weight(data):
    figure = attention_figure(data, "encdec", layer=0)
    assert [axes.get_title() for axes in figure.axes] == ["head 0", "head 1", "head 2"]
    for head, axes in enumerate(figure.axes):
        drawn = lines(axes)
        for (query, key), weight in np.ndenumerate(data.encdec[0, head]):
            assert drawn.pop((query, key), 0) == pytest.approx(weight if weight >= 0.02 else 0)
        assert not drawn
        written = [(text.get_text(), *text.get_position()) for text in axes.texts]
        assert [text for text, x, _ in written if x < 0.5] == ["Hund", "</s>"]
        assert [text for text, x, _ in written if x > 0.5] == ["big", r"\$dog", "</s>"]
        assert [y for _, x, y in written if x > 0.5] == [0, 1, 2]


def test_some_words_have_one_picture_with_a_colour_a_head(data):
    figure = attention_figure(data, "encoder", heads=[0, 2], words=["big"])
    [axes] = figure.axes
    [legend] = figure.legends
    named = {line.get_label(): line.get_color() for line in legend.get_lines()}
    assert list(named) == ["head 0", "head 2"]
    colours = [colors.to_hex(c.get_colors()[0]) for c in axes.collections]
    assert colours == [colors.to_hex(colour) for colour in named.values()]
    assert {query for query, _ in lines(axes)} == {0}
    strong = data.encoder[1][[0, 2], 0] >= 0.02
    assert sum(len(drawn.get_segments()) for drawn in axes.collections) == strong.sum()


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_is_written(data, tmp_path, ending):
    path = tmp_path / f"figure.{ending}"
    require_figure(str(path))
    save_figure(attention_figure(data, "decoder"), str(path))
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG") if ending == "png" else b"</svg>" in content


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "encoders"}, "no attention 'encoders'.* Did you mean 'encoder'?"),
        ({"layer": 2}, "no layer 2: the encdec attention has layers 0 to 1"),
        ({"heads": [3]}, "no head 3: a layer has heads 0 to 2"),
        ({"words": ["Hunt"]}, "'Hunt' is not a query; queries are Hund, </s>. Did you mean"),
    ],
)
def test_wrong_input(data, options, message):
    with pytest.raises(UserError, match=message):
        attention_figure(data, **options)


@pytest.mark.parametrize("path", ["figure", "figure.docx"])
def test_a_name_without_a_known_end_is_refused(path):
    with pytest.raises(UserError, match=f"unknown figure format '{path}'"):
        require_figure(path)
