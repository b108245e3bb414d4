"""`t2t-keras-inspect data`: what batches look like."""

from __future__ import annotations

from typing import TYPE_CHECKING

from absl import flags

from t2t_keras.cli import options
from t2t_keras.ids import without_padding

if TYPE_CHECKING:
    from t2t_keras.data import Problem
    from t2t_keras.data.shards import SplitIndex

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the flags of this subject alone."""
    flags.DEFINE_string("split", "train", "data: train, dev or test.")
    flags.DEFINE_integer("num_examples", 3, "data: examples to show.", lower_bound=0)
    flags.DEFINE_integer("random_seed", 0, "data: of the order, as in a training.")


def main(arguments: list[str]) -> None:
    """Prints what batches look like."""
    options.reject_arguments(arguments)
    data_dir, plot = options.required("data_dir"), options.file_to_write("plot")
    problem, hp = options.problem(), options.hparams()
    if plot:
        from t2t_keras.inspection.figures import require_figure

        require_figure(plot)
    print(*_describe(problem, hp, data_dir, plot), sep="\n")


def _describe(problem: Problem, hp, data_dir: str, plot: str | None) -> list[str]:
    from t2t_keras import data
    from t2t_keras.data.generation.report import (
        describe_split,
        length_histogram,
        padding_table,
        read_counts,
    )
    from t2t_keras.data.shards import read_index

    split, name = FLAGS.split, problem.dataset_filename()
    batches = data.Batches(problem, split, data_dir, hp, seed=FLAGS.random_seed)
    index = read_index(data_dir, name, split)
    lines = [
        f"problem {problem.name}, hparams {hp.set_name}",
        *describe_split(split, index, read_counts(data_dir, name, split)),
        batches.description(),
        *length_histogram(index.lengths),
        *padding_table(index.lengths, batches.buckets),
    ]
    if FLAGS.num_examples:
        lines += _examples(batches, problem.get_feature_encoders(data_dir), FLAGS.num_examples)
    if plot:
        _plot(index, problem.name, split, plot)
        lines.append(f"lengths: {plot}")
    return lines


def _examples(batches, encoders, number: int) -> list[str]:
    """The first examples of the first batch: their ids, and the text that these stand for."""
    batch = next(batches.dataset().as_numpy_iterator())
    shapes = ", ".join(f"{field} {list(ids.shape)}" for field, ids in batch.items())
    lines = [f"first batch: {shapes}"]
    for row in range(min(number, len(batch["inputs"]))):
        for side, encoder in encoders.items():
            ids = without_padding(batch[side][row])
            lines += [f"  {side}: {encoder.decode(ids)}", f"    {' '.join(map(str, ids))}"]
    return lines


def _plot(index: SplitIndex, name: str, split: str, path: str) -> None:
    """Draws how many pairs have which length, one line a side."""
    import numpy as np

    from t2t_keras.inspection.figures import empty_figure, save_figure

    figure = empty_figure(7, 4)
    axes = figure.add_subplot()
    for side, lengths in index.lengths.items():
        pairs = np.bincount(lengths)
        axes.step(range(len(pairs)), pairs, where="mid", label=side)
    axes.set(title=f"{name}, {split}", xlabel="ids, end of sentence included", ylabel="pairs")
    axes.legend()
    save_figure(figure, path)
