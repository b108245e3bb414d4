"""Parsing on a treebank that anybody can have: files of bracketed trees, such as GUM's."""

from __future__ import annotations

from collections.abc import Sequence

from t2t_keras.data.parsing_problem import ParsingProblem
from t2t_keras.parsing.corpora import TreeCorpus
from t2t_keras.registry import register_problem


@register_problem
class ParsingEnglishGum(ParsingProblem):
    """`train.trees`, `dev.trees` and `test.trees`, plain or `.gz`, with a vocabulary of 8 K.

    Any treebank will do. GUM, the Georgetown University Multilayer corpus
    (https://gucorpling.org/gum), has trees of about 13,000 sentences in its folder `const`.
    """

    approx_vocab_size = 2**13

    def corpora(self, split: str) -> Sequence[TreeCorpus]:
        return [TreeCorpus((f"{split}.trees",))]
