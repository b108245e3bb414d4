"""BLEU against t2t-bleu's own figures and by hand."""

import json
import math
import sys
import time
import unicodedata
from pathlib import Path

import pytest

from t2t_keras.errors import UserError
from t2t_keras.metrics import bleu
from t2t_keras.metrics.bleu import international, paper_style
from t2t_keras.text import read_lines

SHARED = Path(__file__).parents[2] / "shared"


@pytest.mark.skipif(not SHARED.exists(), reason="needs T2T's reference numbers in ../shared")
def test_equals_t2t_bleu():
    golden = SHARED / "golden/text"
    figures = bleu(read_lines(golden / "bleu.ref.txt"), read_lines(golden / "bleu.hyp.txt"))
    expected = json.loads((golden / "bleu.json").read_text())
    assert figures.t2t_cased == pytest.approx(expected["cased"], abs=1e-6)
    assert figures.t2t_uncased == pytest.approx(expected["uncased"], abs=1e-6)


def test_a_perfect_translation():
    figures = bleu(*[["One, two, three.", "Four five six."]] * 2)
    assert (figures.sacrebleu, figures.paper_style) == pytest.approx((100, 100))
    assert (figures.t2t_cased, figures.t2t_uncased) == (100, 100)
    assert "case:mixed" in figures.signature and "tok:13a" in figures.signature


def mean(*precisions):
    return 100 * math.prod(precisions) ** (1 / 4)


BY_HAND = {
    # Precisions 3/4, 1/3, then 0/2 and 0/1, which count as (1/2)/2 and (1/4)/1.
    "smoothing": (["a b c d"], ["a b x d"], [mean(3 / 4, 1 / 3, 1 / 4, 1 / 4)] * 2 + [0]),
    "case": (["A b c d"], ["a b c d"], [mean(3 / 4, 2 / 3, 1 / 2, 1 / 2), None, None]),
    "brevity": (["a b c d", "a b c d e f"], ["a b c d"] * 2, [100 * math.exp(1 - 10 / 8)] * 3),
    "an order without an n-gram, left out by T2T only": (["a b"], ["a b"], [100, 0, None]),
    "no output": (["a b c d"], [""], [0, 0, 0]),
    # ein rich ##AT##-##AT## text Format: the first 4 of 5 tokens match.
    "parts of compounds": (["ein rich-text Format"], ["ein rich-text Formular"], [None, None, mean(4 / 5, 3 / 4, 2 / 3, 1 / 2)]),
}  # fmt: skip


@pytest.mark.parametrize(("references", "hypotheses", "by_hand"), BY_HAND.values(), ids=BY_HAND)
def test_by_hand(references, hypotheses, by_hand):
    figures = bleu(references, hypotheses)
    ours = (figures.t2t_cased, figures.sacrebleu, figures.paper_style)
    for our, wanted, tolerance in zip(ours, by_hand, (1e-5, 1e-9, 1e-9), strict=True):
        assert wanted is None or our == pytest.approx(wanted, abs=tolerance)
    if references == ["A b c d"]:
        assert figures.t2t_uncased == 100


def test_international_tokens():
    for line, tokens in {
        "Hello, world!": "Hello , world !",
        "1,000.5 in 2014.": "1,000.5 in 2014.",
        "(a-b) 3-4 5%": "( a - b ) 3-4 5%",
        "x² ½-ton 5€ a\\b": "x² ½ - ton 5 € a\\b",
        "„So“ – so…": "„ So “ – so …",
    }.items():
        assert international(line) == tokens.split()


def test_international_tokens_of_all_kinds_of_characters():
    """The first and the last character of each run of one Unicode category, by the rules' definition."""
    kinds = ["", *(unicodedata.category(chr(c)) for c in range(sys.maxunicode + 1)), ""]
    for code_point, neighbours in enumerate(zip(kinds, kinds[1:], kinds[2:], strict=False)):
        if len(set(neighbours)) > 1:
            character, kind = chr(code_point), neighbours[1]
            alone = kind[0] in "PS" and character != "\\"
            tokens = ["a", character, "b"] if alone else f"a{character}b".split()
            assert international(f"a{character}b") == tokens


def test_a_long_line_takes_little_time():
    line = "Ein Satz, 3,5 Wörter - „lang“! 😀 " * 20_000
    start = time.process_time()
    assert len(international(line)) == 220_000
    assert time.process_time() - start < 1.75  # 0.5 s; with single characters, not ranges, 3.3 s


def test_paper_style_tokens():
    """By hand; Moses's `tokenizer.perl -l fr` and its Python port sacremoses give the same French."""
    data = Path(__file__).with_name("data") / "paper_style_tokens.json"
    for language, rows in json.loads(data.read_text("utf-8")).items():
        for line, tokens in rows:
            assert paper_style(line, language) == tokens.split()
    assert paper_style("a-b") == paper_style("a-b", "de")  # the default


def test_french_is_scored_by_french_rules():
    # l' eau est-là bien vue ici: the first 5 of 6 tokens match. By German rules there are nine:
    # l ' eau est ##AT##-##AT## là bien vue ici.
    pair = ["l'eau est-là bien vue ici"], ["l'eau est-là bien vue hier"]
    french, german = bleu(*pair, language="fr"), bleu(*pair)
    assert french.paper_style == pytest.approx(mean(5 / 6, 4 / 5, 3 / 4, 2 / 3), abs=1e-9)
    assert german.paper_style == pytest.approx(mean(8 / 9, 7 / 8, 6 / 7, 5 / 6), abs=1e-9)
    assert (french.sacrebleu, french.t2t_cased) == (german.sacrebleu, german.t2t_cased)


def test_what_cannot_be_scored():
    for message, *arguments in (
        ("language must be one of de, fr, got 'en'", ["a"], ["a"], "en"),
        ("2 references but 1 translations", ["a", "b"], ["a"]),
        ("no sentences", [], []),
    ):
        with pytest.raises(UserError, match=message):
            bleu(*arguments)
