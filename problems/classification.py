"""Text classification: sentiment of film reviews."""

from __future__ import annotations

from t2t_keras.data import DatasetSplit, TfdsClassProblem, VocabType
from t2t_keras.registry import register_problem


@register_problem("sentiment_imdb")
class SentimentIMDB(TfdsClassProblem):
    """Film reviews of IMDB, 25,000 each for training and dev: negative or positive (T2T's name)."""

    tfds_name = "imdb_reviews"
    tfds_splits = {DatasetSplit.TRAIN: "train", DatasetSplit.EVAL: "test"}  # as in T2T
    num_classes = 2
    approx_vocab_size = 2**13

    def class_labels(self, data_dir=None) -> list[str]:
        return ["neg", "pos"]


@register_problem("sentiment_imdb_characters")
class SentimentIMDBCharacters(SentimentIMDB):
    """The same as bytes (T2T's name)."""

    vocab_type = VocabType.CHARACTER
