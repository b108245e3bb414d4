"""The built-in default problem: spelled-out numbers, English to German, without downloads.

Its English sentences are also used for a language model and for classification.
"""

from __future__ import annotations

from t2t_keras.data.problem import SPLITS, with_shards
from t2t_keras.data.single_text import Text2ClassProblem, Text2SelfProblem
from t2t_keras.data.text_problem import PathLike, Samples, Text2TextProblem
from t2t_keras.problems.numbers import pairs
from t2t_keras.registry import register_problem


class _Numbers:
    """Attributes that the problems share."""

    approx_vocab_size = 2**9  # long German numbers become a few subwords
    dataset_splits = with_shards(SPLITS, train=1)
    is_generate_per_split = True  # each split has its own values


@register_problem
class TranslateEndeNumbers(_Numbers, Text2TextProblem):
    """Numbers, dates, times, prices and phrases with them, in English and German words.

    24,000 pairs for training, 500 for dev, 500 for test, always the same. Values in dev and test do not
    occur in training sentences of the same family of phrases (`pairs.split_of`), so a good score shows
    that the model has learned the rules. Each English sentence has exactly one German translation, so
    BLEU 100 is possible.
    """

    def generate_samples(self, data_dir: PathLike, tmp_dir: PathLike, split: str) -> Samples:
        """Yields `{"inputs": English, "targets": German}`; both directories are unused."""
        for english, german in pairs.pairs(split):
            yield {"inputs": english, "targets": german}


@register_problem
class LanguagemodelEnNumbers(_Numbers, Text2SelfProblem):
    """The English sentences of `translate_ende_numbers`, for a language model."""

    def generate_samples(self, data_dir: PathLike, tmp_dir: PathLike, split: str) -> Samples:
        return ({"targets": english} for english, _ in pairs.pairs(split))


@register_problem
class QuantityEnNumbers(_Numbers, Text2ClassProblem):
    """The English sentences of `translate_ende_numbers`, classified by the kind of quantity in them."""

    num_classes = len(pairs.FAMILIES)

    def class_labels(self, data_dir: PathLike | None = None) -> list[str]:
        return pairs.FAMILIES

    def generate_samples(self, data_dir: PathLike, tmp_dir: PathLike, split: str) -> Samples:
        for kind, _, (english, _) in pairs.examples(split):
            yield {"inputs": english, "label": pairs.FAMILIES.index(kind.family)}
