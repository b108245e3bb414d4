"""Display of ids: as text, and grouped into words."""

import pytest

from t2t_keras.inspection.tokens import shown_tokens
from t2t_keras.text import ByteTextEncoder, SubwordTextEncoder, TokenTextEncoder

SUBTOKENS = ["<pad>", "<EOS>", "Ein_", "Ha", "us", ", _", "ja_", "S_", "NP_", " /_"]
CHARACTERS = "_\\0123456789;u b"


@pytest.fixture(scope="module")
def subwords(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "vocab"
    path.write_text("".join(f"'{subtoken}'\n" for subtoken in [*SUBTOKENS, *CHARACTERS]))
    return SubwordTextEncoder(path)


def shown(encoder, text, **options):
    return shown_tokens(encoder, [*encoder.encode(text), 1], **options)


def test_subwords_are_shown_without_marks_and_belong_to_tokens_of_the_tokenizer(subwords):
    tokens = shown(subwords, "Ein Haus, ja")
    assert tokens.text == "Ein Haus, ja"
    assert tokens.tokens == ["Ein", "Ha", "us", "·", ",", "ja", "</s>"]
    assert tokens.words == [0, 1, 1, 1, 2, 3, 4]
    assert tokens.word_texts == ["Ein", "Haus", ",", "ja", "</s>"]


def test_a_character_without_a_subtoken_is_shown_as_it_is_spelled_and_its_word_as_it_is(subwords):
    tokens = shown(subwords, "u € b")
    assert tokens.tokens == ["u", "·", "␣", *"\\8364;", "␣", "·", "b", "·", "</s>"]
    assert tokens.word_texts == ["u", "€", "b", "</s>"]
    assert tokens.words == [0, 0, *[1] * 9, 2, 2, 3]


def test_escapes_that_are_whole_are_undone():
    subwords = SubwordTextEncoder.__new__(SubwordTextEncoder)
    subwords.__setstate__({"subtokens": ["<pad>", "<EOS>", "\\u_", "a\\\\"]})
    assert shown_tokens(subwords, [3, 2]).tokens == ["a\\", "_"]


def test_what_ends_early_is_shown_and_what_no_subtoken_has_as_a_number(subwords):
    tokens = shown_tokens(subwords, [3, 99, 4])
    assert tokens.tokens == ["Ha", "ID_99", "us"]
    assert tokens.words == [0, 0, 1]


def test_symbols_of_a_tree_are_whole_words(subwords):
    text = "S NP NP /NP /S"
    assert shown(subwords, text).word_texts == ["S", "NP", "NP", "/", "NP", "/", "S", "</s>"]
    tokens = shown(subwords, text, split_at_space=True)
    assert tokens.word_texts == ["S", "NP", "NP", "/NP", "/S", "</s>"]
    assert tokens.words == [0, 1, 2, 3, 3, 4, 4, 5]


def test_bytes_make_words_between_white_space():
    tokens = shown(ByteTextEncoder(), "a  ß")
    assert tokens.tokens == ["a", "␣", "␣", "\ufffd", "\ufffd", "</s>"]
    assert tokens.words == [0, 1, 1, 2, 2, 3]
    assert tokens.word_texts == ["a", "␣␣", "ß", "</s>"]


def test_listed_tokens_are_words():
    encoder = TokenTextEncoder(vocab_list=["big", "dog"])
    tokens = shown(encoder, "dog big")
    assert tokens.tokens == tokens.word_texts == ["dog", "big", "</s>"]
    assert tokens.words == [0, 1, 2]


def test_by_words(subwords):
    words = shown(subwords, "Ein Haus").by_words()
    assert words.tokens == ["Ein", "Haus", "</s>"]
    assert words.words == [0, 1, 2]
    assert words.text == "Ein Haus"
