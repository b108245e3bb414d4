"""Display of ids: as text, and grouped into words."""

import pytest

from t2t_keras.inspection.tokens import Tokens, shown_tokens
from t2t_keras.text import ByteTextEncoder, SubwordTextEncoder, TokenTextEncoder

SUBTOKENS = ["<pad>", "<EOS>", "Ein_", "Ha", "us", ", _", "ja_", "S_", "NP_", " /_"]
CHARACTERS = "_\\0123456789;u b"


@pytest.fixture(scope="module")
def encoders(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "vocab"
    path.write_text("".join(f"'{subtoken}'\n" for subtoken in [*SUBTOKENS, *CHARACTERS]))
    escapes = SubwordTextEncoder.__new__(SubwordTextEncoder)
    escapes.__setstate__({"subtokens": ["<pad>", "<EOS>", "\\u_", "a\\\\"]})
    return {
        "subwords": SubwordTextEncoder(path),
        "escapes": escapes,
        "bytes": ByteTextEncoder(),
        "words": TokenTextEncoder(vocab_list=["big", "dog"]),
    }


@pytest.mark.parametrize(
    ("name", "text", "tokens", "words", "numbers"),
    [
        # A word is a token of T2T's tokenizer; "·" only ends one.
        ("subwords", "Ein Haus, ja", "Ein Ha us · , ja", "Ein Haus , ja", [0, 1, 1, 1, 2, 3]),
        # A character without a subtoken is spelled by its number; "␣" is a space.
        ("subwords", "u € b", "u · ␣ \\ 8 3 6 4 ; ␣ · b ·", "u € b", [0, 0, *[1] * 9, 2, 2]),
        ("bytes", "a  ß", "a ␣ ␣ \ufffd \ufffd", "a ␣␣ ß", [0, 1, 1, 2, 2]),
        ("words", "dog big", "dog big", "dog big", [0, 1]),
    ],
)
def test_tokens_and_words(encoders, name, text, tokens, words, numbers):
    """Tokens are shown without T2T's marks, and belong to words; the end of sentence is one."""
    shown = shown_tokens(encoders[name], [*encoders[name].encode(text), 1])
    end = ["</s>"]
    numbers = [*numbers, numbers[-1] + 1]
    assert shown == Tokens(text, tokens.split() + end, numbers, words.split() + end)


@pytest.mark.parametrize(
    ("name", "ids", "tokens", "words"),
    [
        ("escapes", [3, 2], ["a\\", "_"], [0, 0]),
        ("subwords", [3, 99, 4], ["Ha", "ID_99", "us"], [0, 0, 1]),
    ],
)
def test_ids_that_no_text_has(encoders, name, ids, tokens, words):
    """Escapes are undone where they are whole, and an id beyond the vocabulary is a number."""
    shown = shown_tokens(encoders[name], ids)
    assert (shown.tokens, shown.words) == (tokens, words)


def test_symbols_of_a_tree_are_whole_words(encoders):
    """Of a linearised tree, words end at white space alone, so that "/NP" is one."""
    subwords, text = encoders["subwords"], "S NP NP /NP /S"
    ids = [*subwords.encode(text), 1]
    assert " ".join(shown_tokens(subwords, ids).word_texts) == "S NP NP / NP / S </s>"
    tokens = shown_tokens(subwords, ids, split_at_space=True)
    assert " ".join(tokens.word_texts) == "S NP NP /NP /S </s>"
    assert tokens.words == [0, 1, 2, 3, 3, 4, 4, 5]


def test_by_words(encoders):
    """`by_words` has a token for each word."""
    subwords = encoders["subwords"]
    words = shown_tokens(subwords, [*subwords.encode("Ein Haus"), 1]).by_words()
    texts = ["Ein", "Haus", "</s>"]
    assert words == Tokens("Ein Haus", texts, [0, 1, 2], texts)
