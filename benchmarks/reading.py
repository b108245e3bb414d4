"""Measures the speed of reading batches from shards and their padding, compared with T2T's scheme.

    python benchmarks/reading.py --data_dir DIR --name PROBLEM --hparams transformer_base

The same batches are read three times: first with checksums, then without, then to count their
contents. Nothing else runs meanwhile. Padding is its share of the positions of both sides.
"""

import argparse
import os
import resource
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from t2t_keras import registry
from t2t_keras.data import Batches, Problem
from t2t_keras.data.shards import read_index


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data_dir", required=True, help="where the shards are")
    parser.add_argument("--name", required=True, help="what their names begin with")
    parser.add_argument("--split", default="train", help="%(default)s unless given")
    parser.add_argument("--hparams", default="transformer_base", help="settings of the batches")
    parser.add_argument("--replicas", type=int, default=1, help="%(default)s unless given")
    parser.add_argument("--batches", type=int, default=2000, help="%(default)s unless given")
    arguments = parser.parse_args()

    import tensorflow as tf

    tf.zeros([1])
    before = memory()
    start = time.perf_counter()
    index = read_index(arguments.data_dir, arguments.name, arguments.split)
    size = sum(path.stat().st_size for path in index.paths)
    print(
        f"{len(index.sizes):,} pairs in {len(index.paths)} shards of {size / 1e6:,.1f} MB, their index "
        f"read in {time.perf_counter() - start:.2f} s; TensorFlow alone has {before:,.0f} MB.\n"
    )
    del index
    print(
        "| batches | target ids/s at first | again | a second of a core | pairs/s "
        "| padding | ids a batch, targets | shapes | first batch (s) | memory (MB) |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for ours in (True, False):
        measure(arguments, ours)


def measure(arguments: argparse.Namespace, ours: bool) -> None:
    """Prints the cost and the properties of one way of making batches."""
    problem = Problem()
    problem.dataset_filename = lambda: arguments.name
    start = time.perf_counter()
    batches = Batches(
        problem,
        arguments.split,
        arguments.data_dir,
        registry.hparams(arguments.hparams),
        replicas=arguments.replicas,
        repeat=True,
        shuffle=True,
        pad_to_boundary=ours,
    )
    next(iter(batches.dataset()))
    first = time.perf_counter() - start
    (checked, _), (seconds, busy) = (read(batches, arguments.batches) for _ in range(2))

    pairs = ids = targets = positions = 0
    shapes = set()
    for batch in batches.dataset().take(arguments.batches).as_numpy_iterator():
        shapes.add(tuple(side.shape for side in batch.values()))
        positions += sum(side.size for side in batch.values())
        real = {name: int((side != 0).sum()) for name, side in batch.items()}
        ids += sum(real.values())
        targets += real["targets"]
        pairs += int((batch["targets"][:, 0] != 0).sum())
    print(
        f"| {'ours' if ours else 'as T2T makes them'} | {targets / checked:,.0f} "
        f"| {targets / seconds:,.0f} | {targets / busy:,.0f} | {pairs / seconds:,.0f} "
        f"| {1 - ids / positions:.2%} | {ids / arguments.batches:,.0f}, "
        f"{targets / arguments.batches:,.0f} | {len(shapes)} | {first:.2f} | {memory():,.0f} |",
        flush=True,
    )


def read(batches: Batches, number: int) -> tuple[float, float]:
    """Reads batches; returns the elapsed seconds and the CPU seconds of all cores."""
    start, busy = time.perf_counter(), time.process_time()
    for _ in batches.dataset().take(number):
        pass
    return time.perf_counter() - start, time.process_time() - busy


def memory() -> float:
    """The peak memory of this process in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
