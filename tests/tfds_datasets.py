"""A small dataset of TensorFlow Datasets, and what it holds."""

from pathlib import Path

import tensorflow_datasets as tfds

SIZES = {"train": 200, "validation": 20, "test": 12}


class ToyTranslate(tfds.core.GeneratorBasedBuilder):
    """Numbered sentences, German and English, with spaces around some."""

    VERSION = tfds.core.Version("1.2.0")

    def _info(self):
        return tfds.core.DatasetInfo(
            builder=self,
            features=tfds.features.Translation(languages=("de", "en")),
            supervised_keys=("de", "en"),
        )

    def _split_generators(self, manager):
        return {split: self._generate_examples(split, size) for split, size in SIZES.items()}

    def _generate_examples(self, split, size):
        for number in range(size):
            yield (
                number,
                {"de": f"Sätzchen {number:04d} {split}", "en": f" sentence {number:04d} {split} "},
            )


def pair(split, number):
    """Returns the pair that a reader makes of an example, English first."""
    return f"sentence {number:04d} {split}", f"Sätzchen {number:04d} {split}"


def prepare(data_dir, **options) -> Path:
    """Prepares the dataset below `data_dir`, its training in several files; returns its directory."""
    builder = ToyTranslate(data_dir=data_dir, **options)
    builder.download_and_prepare(download_config=tfds.download.DownloadConfig(num_shards=3))
    return Path(builder.data_dir)
