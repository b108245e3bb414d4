"""Pairs and megabytes per second from two text files to 100 shuffled shards, compared with other methods.

tensor2tensor's method is plain Python here, in one process as in T2T: its encoder, TensorFlow's
examples and writer; then every shard is read, shuffled and written again. SentencePiece, if installed
(`pip install t2t-keras[bench]`), encodes in C++, and TensorFlow writes the ids. Each method starts
from an existing vocabulary and runs in separate processes. The files are repeated up to --pairs.
"""

import argparse
import io
import itertools
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from processes import existing

from t2t_keras.text import SubwordTextEncoder, iterate_lines

SHARDS = 100
EVERYBODY = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "files", type=existing, nargs="*", help="SOURCE TARGET, or several such pairs of files"
    )
    parser.add_argument("--pairs", type=int, default=1_000_000, help="(%(default)s)")
    parser.add_argument("--vocab_size", type=int, default=32768, help="(%(default)s)")
    parser.add_argument("--ways", default="1,2,t2t,sentencepiece", help="a number: our processes")
    parser.add_argument("--directory", help="where to work; by default a temporary directory")
    parser.add_argument("--run", nargs=2, metavar=("WAY", "DIRECTORY"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    for way in args.ways.split(","):
        if way not in ("t2t", "sentencepiece") and not way.isdigit():
            parser.error(f"argument --ways: {way!r} is neither a number nor t2t or sentencepiece")
    if len(args.files) % 2:
        parser.error("argument files: they are pairs, SOURCE TARGET")
    if args.run:
        way, directory = args.run
        print(json.dumps(measure(way, Path(directory), args.pairs)))
        return
    with tempfile.TemporaryDirectory(dir=args.directory) as name:
        directory = Path(name)
        megabytes = prepare(args.files, args.pairs, args.vocab_size, directory)
        load = ", ".join(f"{load:.1f}" for load in os.getloadavg())
        print(f"{args.pairs:,} pairs, {megabytes:.1f} MB of text. Load average: {load}.")
        print(
            f"{'':24}{'seconds':>9}{'pairs/s':>10}{'MB/s':>7}"
            f"{'pairs a CPU second':>20}{'largest process':>17}"
        )
        for way in args.ways.split(","):
            figures = run_apart(way, directory, args.pairs)
            name = f"t2t_keras, processes: {way}" if way.isdigit() else way
            print(
                f"{name:24}{figures['seconds']:9.1f}{args.pairs / figures['seconds']:10,.0f}"
                f"{megabytes / figures['seconds']:7.1f}"
                f"{args.pairs / figures['cpu_seconds']:20,.0f}{figures['megabytes']:14,.0f} MB",
                flush=True,
            )


def prepare(files: list[str], pairs: int, vocab_size: int, directory: Path) -> float:
    """Writes the corpus and the vocabularies; returns the corpus's megabytes."""
    sources, targets = files[::2], files[1::2]
    if not sources or len(sources) != len(targets):
        raise SystemExit("Give pairs of files: SOURCE TARGET [SOURCE TARGET ...]")
    for side, paths in (("source", sources), ("target", targets)):
        lines = list(itertools.chain.from_iterable(map(iterate_lines, paths)))
        with (directory / side).open("w") as file:
            file.writelines(f"{line}\n" for line in itertools.islice(itertools.cycle(lines), pairs))
        (directory / f"once.{side}").write_text("\n".join(lines))
    text = [(directory / f"once.{side}").read_text().split("\n") for side in ("source", "target")]
    encoder = SubwordTextEncoder.build_from_generator(itertools.chain(*text), vocab_size)
    encoder.store_to_file(directory / "vocabulary")
    return sum((directory / side).stat().st_size for side in ("source", "target")) / 1e6


def run_apart(way: str, directory: Path, pairs: int) -> dict[str, float]:
    """Measures one method in a separate process."""
    command = [sys.executable, __file__, "--run", way, str(directory), f"--pairs={pairs}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def measure(way: str, directory: Path, pairs: int) -> dict[str, float]:
    """Generates data with one method; returns seconds, CPU seconds and the largest process's memory."""
    data_dir = directory / f"data.{way}"
    data_dir.mkdir()
    prepared = {"sentencepiece": prepare_sentencepiece, "t2t": prepare_t2t}.get(way, prepare_ours)
    generate = prepared(way, directory, data_dir)
    start, cpu_start = time.monotonic(), cpu_seconds()
    generate()
    seconds, cpu = time.monotonic() - start, cpu_seconds() - cpu_start
    shutil.rmtree(data_dir)
    largest = max(resource.getrusage(who).ru_maxrss for who in EVERYBODY)
    return {"seconds": seconds, "cpu_seconds": cpu, "megabytes": largest / 1024}


def cpu_seconds() -> float:
    """Returns the CPU seconds of this process and of its finished children."""
    usages = map(resource.getrusage, EVERYBODY)
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def prepare_ours(way: str, directory: Path, data_dir: Path):
    """Prepares the work of `t2t-keras-datagen --num_concurrent_processes=WAY`."""
    from t2t_keras import data

    class Pairs(data.TranslateProblem):
        dataset_splits = [{"split": "train", "shards": SHARDS}]
        vocab_filename = "vocabulary"

        def source_data_files(self, split):
            return [["", ("source", "target")]]

    shutil.copy(directory / "vocabulary", data_dir)
    problem = Pairs()
    problem.processes = int(way)
    return lambda: problem.generate_data(data_dir, directory)


def prepare_t2t(way: str, directory: Path, data_dir: Path):
    """tensor2tensor's loop."""
    import plain_t2t
    import tensorflow  # noqa: F401  (not part of what is measured)

    encoder = plain_t2t.Encoder(SubwordTextEncoder(directory / "vocabulary").all_subtoken_strings)
    return lambda: write_as_t2t(encoder.encode, directory, data_dir)


def prepare_sentencepiece(way: str, directory: Path, data_dir: Path):
    """T2T's loop around SentencePiece's unigram encoder, with a model of the same size."""
    import sentencepiece
    import tensorflow  # noqa: F401  (not part of what is measured)

    lines = [
        line
        for side in ("source", "target")
        for line in (directory / f"once.{side}").read_text().split("\n")
    ]
    model = io.BytesIO()
    size = SubwordTextEncoder(directory / "vocabulary").vocab_size
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=size, minloglevel=2
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    return lambda: write_as_t2t(processor.encode, directory, data_dir)


def write_as_t2t(encode, directory: Path, data_dir: Path) -> None:
    """Distributes examples over shards, then reads, shuffles and rewrites each."""
    import tensorflow as tf

    def example(*sides):
        features = {
            field: tf.train.Feature(int64_list=tf.train.Int64List(value=[*encode(text), 1]))
            for field, text in zip(("inputs", "targets"), sides, strict=True)
        }
        return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()

    paths = [str(data_dir / f"unshuffled-{number}") for number in range(SHARDS)]
    writers = [tf.io.TFRecordWriter(path) for path in paths]
    sides = (iterate_lines(directory / side) for side in ("source", "target"))
    for number, pair in enumerate(zip(*sides, strict=True)):
        writers[number % SHARDS].write(example(*(text.strip() for text in pair)))
    for number, (path, writer) in enumerate(zip(paths, writers, strict=True)):
        writer.close()
        records = list(tf.data.TFRecordDataset(path).as_numpy_iterator())
        random.shuffle(records)
        with tf.io.TFRecordWriter(str(data_dir / f"train-{number}")) as shuffled:
            for record in records:
                shuffled.write(record)
        os.remove(path)


if __name__ == "__main__":
    main()
