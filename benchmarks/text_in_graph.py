"""Lines and megabytes per second from text to ids and back: in Python, and in a graph.

    python benchmarks/text_in_graph.py --vocab=data/vocab.translate_ende_wmt32k.32768.subwords train.de train.en

Without `--vocab` a vocabulary is learned from the lines, with `--sentencepiece` by SentencePiece. Graphs
process batches; `map` is a tf.data pipeline with `--parallel` concurrent calls. All results are compared
with Python's.
"""

import argparse
import os
import time
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf
from text_lines import add_text_arguments, describe, different_lines, megabytes

from t2t_keras.text import SentencePieceEncoder, SubwordTextEncoder
from t2t_keras.text.sentencepiece import MODEL_TYPES


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_text_arguments(parser, lines=50_000)
    parser.add_argument("--vocab", help="a subword vocabulary")
    parser.add_argument("--sentencepiece", choices=MODEL_TYPES, help="pieces instead of subwords")
    parser.add_argument("--target_size", type=int, default=32768, help="subwords (%(default)s)")
    parser.add_argument("--batch", type=int, default=256, help="lines a batch (%(default)s)")
    parser.add_argument("--parallel", type=int, default=os.cpu_count(), help="(%(default)s)")
    parser.add_argument("--repeats", type=int, default=5, help="take the best of (%(default)s)")
    args = parser.parse_args()
    lines = different_lines(args.files, args.lines)
    print(describe(lines))
    if args.vocab:
        kind = SentencePieceEncoder if args.sentencepiece else SubwordTextEncoder
        encoder = kind(args.vocab)
    elif args.sentencepiece:
        encoder = SentencePieceEncoder.build_from_generator(
            lines, args.target_size, args.sentencepiece
        )
    else:
        encoder = SubwordTextEncoder.build_from_generator(lines, args.target_size)

    start = time.perf_counter()
    encoder.decode_tensor(encoder.encode_tensor(tf.constant(["a first call"])))
    print(f"Graphs made and traced in {time.perf_counter() - start:.1f} s.")
    ids = [encoder.encode(line) for line in lines]
    batches = [tf.constant(lines[i : i + args.batch]) for i in range(0, len(lines), args.batch)]
    id_batches = [encoder.encode_tensor(batch) for batch in batches]
    assert [row for batch in id_batches for row in batch.to_list()] == ids
    texts = [text for batch in id_batches for text in encoder.decode_tensor(batch).numpy()]
    assert [text.decode() for text in texts] == [encoder.decode(row) for row in ids]
    data = tf.data.Dataset.from_tensor_slices(lines).batch(args.batch).cache()
    encoded = data.map(encoder.encode_tensor, num_parallel_calls=args.parallel)
    decoded = tf.data.Dataset.from_tensor_slices(tf.concat(id_batches, 0))
    decoded = (
        decoded.batch(args.batch)
        .cache()
        .map(encoder.decode_tensor, num_parallel_calls=args.parallel)
    )

    print(f"\nBest of {args.repeats}; batches of {args.batch}, map {args.parallel} at once.")
    print(f"{'':20}{'seconds':>10}{'CPU':>8}{'lines/s':>12}{'MB/s':>8}{'MB/CPU s':>10}")
    for name, call in {
        "encode, Python": lambda: [encoder.encode(line) for line in lines],
        "encode, graph": lambda: [encoder.encode_tensor(batch) for batch in batches],
        "encode, map": lambda: _exhaust(encoded),
        "decode, Python": lambda: [encoder.decode(row) for row in ids],
        "decode, graph": lambda: [encoder.decode_tensor(batch) for batch in id_batches],
        "decode, map": lambda: _exhaust(decoded),
    }.items():
        seconds, cpu = (
            min(times) for times in zip(*(_timed(call) for _ in range(args.repeats)), strict=True)
        )
        size = megabytes(lines)
        print(
            f"{name:20}{seconds:10.2f}{cpu:8.2f}{len(lines) / seconds:12,.0f}"
            f"{size / seconds:8.1f}{size / cpu:10.1f}",
            flush=True,
        )


def _timed(call: Callable[[], object]) -> tuple[float, float]:
    start = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - start[0], time.process_time() - start[1]


def _exhaust(data: tf.data.Dataset) -> None:
    for _ in data:
        pass


if __name__ == "__main__":
    main()
