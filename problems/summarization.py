"""Summarisation: news stories and their highlights."""

from __future__ import annotations

from collections.abc import Iterator

from t2t_keras.data import DatasetSplit, TfdsTranslateProblem
from t2t_keras.registry import register_problem


@register_problem
class SummarizeCnnDailymail32k(TfdsTranslateProblem):
    """News stories of CNN and the Daily Mail and their highlights, 287,000 pairs (T2T's name)."""

    tfds_name = "cnn_dailymail"
    languages = ("article", "highlights")

    @property
    def dataset_splits(self) -> list[dict]:
        """100 training shards and 10 for each other split, as in T2T."""
        train = DatasetSplit.TRAIN
        return [
            {"split": split, "shards": 100 if split == train else 10} for split in self.tfds_splits
        ]

    def generate_samples(self, data_dir, tmp_dir, split: str) -> Iterator[dict[str, str]]:
        """Yields stories and highlights, each on one line; in the dataset they have several lines."""
        for sample in super().generate_samples(data_dir, tmp_dir, split):
            yield {side: " ".join(text.split()) for side, text in sample.items()}
