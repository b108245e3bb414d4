"""The labels of the Penn Treebank and of the treebanks that follow it."""

from __future__ import annotations

import functools
import re

_PHRASES = """
ADJP ADVP CONJP FRAG INTJ LST NAC NP NX PP PRN PRT QP ROOT RRC S S1 SBAR SBARQ SINV SQ TOP UCP VP
WHADJP WHADVP WHNP WHPP X
"""

_TAGS = """
CC CD DT EX FW IN JJ JJR JJS LS MD NN NNP NNPS NNS PDT POS PRP PRP$ RB RBR RBS RP SYM TO UH VB VBD
VBG VBN VBP VBZ WDT WP WP$ WRB # $ . , : '' `` -LRB- -RRB- ADD AFX GW HYPH NFP XX
"""

PHRASES = frozenset(_PHRASES.split())
"""Of phrases."""

TAGS = frozenset(_TAGS.split())
"""Of words, with those of the English Web Treebank."""

TRACE = "-NONE-"
"""The tag of what is not a word of the sentence."""

UNKNOWN_TAG = "XX"
"""The tag of a word that has none."""

TAG_OF_MARK = {
    **{mark: mark for mark in [",", ".", ":", "``", "''", "-LRB-", "-RRB-"]},
    **dict.fromkeys("?!", "."),
    **dict.fromkeys([";", "--", "..."], ":"),
}
"""Of punctuation that has one tag only."""

_FIRST_PART = re.compile("[^-=]+")


@functools.lru_cache(4096)
def bare_label(label: str) -> str:
    """Takes functional tags and indices off: "NP-SBJ-1" and "NP=2" are "NP", "-LRB-" stays."""
    match = _FIRST_PART.match(label)
    return match[0] if match else label
