"""How well a tag of the Penn Treebank suits an English word, by the word's form alone."""

from __future__ import annotations

import functools

from t2t_keras.parsing.labels import TAG_OF_MARK, TAGS

PERFECT, POOR, OTHER_MARK, WRONG = 0, 1, 1, 3

_NOUNS = frozenset({"NN", "NNS", "NNP", "NNPS"})
_CLOSED_CLASSES = "CC DT EX IN MD PDT POS PRP PRP$ RP TO WDT WP WP$ WRB"
_CLOSED_TAGS = frozenset(_CLOSED_CLASSES.split())
_PUNCTUATION_TAGS = frozenset({"-LRB-", "-RRB-", "HYPH", "NFP", "SYM"})
_SYMBOLIC_WORDS = frozenset({"%", "&"})  # tagged as words

# Words that there are no new ones of, under all tags that they can have.
_WORDS_OF_TAGS = {
    "DT PDT": "the a an these those every each another any some no all both either neither half such",
    "DT": "this",
    "DT IN WDT RB": "that",
    "IN RP RB": (
        "of in on at by for with from as than into about after before between through during over "
        "under against without within since until till among like if because while although though "
        "whether upon per via out up off down across around along behind beside besides beyond above "
        "below near toward towards onto despite throughout once except outside inside unless"
    ),
    "TO IN": "to",
    "CC": "and or but nor & yet plus",
    "PRP": (
        "i you he she it we they me him us them myself yourself himself herself itself ourselves "
        "themselves"
    ),
    "PRP PRP$": "her his mine yours",
    "PRP$": "my your its our their",
    "MD VBD": "can could will would shall should may might must ca wo 'll ’ll 'd ’d",
    "VB VBD VBG VBN VBP VBZ": (
        "is are was were be been being am have has had having do does did done doing 're ’re 'm ’m "
        "'ve ’ve"
    ),
    "POS PRP VBZ": "'s ’s",
    "EX RB": "there",
    "IN WDT WP WP$": "who what which whom whose",
    "WRB": "when where why how",
    "RB": "not n't n’t never very also then too just now here only even still again ever always often so",
    "JJR JJS RBR RBS": "more most less least",
    "RB UH": "oh yeah uh um yes okay ok",
    "CD NN PRP": (
        "one two three four five six seven eight nine ten hundred thousand million billion"
    ),
}
_TAGS_OF_WORD = {
    word: frozenset(tags.split())
    for tags, words in _WORDS_OF_TAGS.items()
    for word in words.split()
}

_TAGS_OF_ENDING = {
    "ly": frozenset({"RB", "JJ"}),
    "ing": frozenset({"VBG", "NN"}),
    "ed": frozenset({"VBD", "VBN", "JJ"}),
    "s": frozenset({"NNS", "VBZ", "NN"}),
    "": frozenset({"NN", "JJ", "VB", "VBD", "VBN", "VBP"}),
}
_TAGS_OF_CAPITALISED = _NOUNS | {"JJ", "UH"}
_TAGS_OF_DIGITS = frozenset({"CD", "JJ", "LS", "NN", "NNP"})


@functools.lru_cache(2**16)
def mismatch(word: str, tag: str) -> int:
    """Returns how badly a tag suits a word: from `PERFECT` to `WRONG`.

    Punctuation has tags of its own. A tag that is not one of the Penn Treebank says nothing, and
    is `POOR` for every word.
    """
    mark = is_mark(word)
    if mark != _is_mark_tag(tag):
        return WRONG
    if mark:
        return PERFECT if tag == TAG_OF_MARK.get(word, word) else OTHER_MARK
    if tag not in TAGS:
        return POOR
    closed = _TAGS_OF_WORD.get(word.lower())
    if closed is not None:
        return PERFECT if tag in closed else WRONG
    if tag in _likely_tags(word):
        return PERFECT
    return WRONG if tag in _CLOSED_TAGS else POOR


def is_mark(word: str) -> bool:
    """Whether a word is punctuation; it may be written as its tag, such as "-LRB-"."""
    if word in _PUNCTUATION_TAGS:
        return True
    return word not in _SYMBOLIC_WORDS and not any(map(str.isalnum, word))


def _is_mark_tag(tag: str) -> bool:
    return tag in _PUNCTUATION_TAGS or not any(map(str.isalpha, tag))


def _likely_tags(word: str) -> frozenset[str]:
    """The tags of most words of this form."""
    if any(map(str.isdigit, word)):
        return _TAGS_OF_DIGITS
    if word[0].isupper():
        return _TAGS_OF_CAPITALISED
    return next(tags for ending, tags in _TAGS_OF_ENDING.items() if word.lower().endswith(ending))
