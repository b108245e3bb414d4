"""Lines and megabytes per second that one core encodes, compared with other encoders on the same text.

tensor2tensor's method is plain Python here. SentencePiece and Hugging Face's tokenizers are C++ and
Rust; they are measured if installed (`pip install t2t-keras[bench]`). Each has a vocabulary of the
same size, learned from the same lines, and encodes all lines in one call if it can.
"""

import argparse
import copy
import io
import os
import sys
from collections.abc import Callable

import plain_t2t
from text_lines import add_text_arguments, describe, different_lines, megabytes, timed

from t2t_keras.text import SubwordTextEncoder

Encode = Callable[[list[str]], list[list[int]]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_text_arguments(parser, lines=100_000)
    parser.add_argument("--target_size", type=int, default=32768, help="subwords (%(default)s)")
    parser.add_argument("--repeats", type=int, default=5, help="new encoders each (%(default)s)")
    args = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    lines = different_lines(args.files, args.lines)
    print(describe(lines))

    encoder = SubwordTextEncoder.build_from_generator(lines, args.target_size)
    subtokens = encoder.all_subtoken_strings
    methods = {
        "t2t_keras": lambda: _one_by_one(copy.deepcopy(encoder).encode),
        "T2T in plain Python": lambda: _one_by_one(plain_t2t.Encoder(subtokens).encode),
    }
    ours, plain = (new()(lines) for new in methods.values())
    assert ours == plain
    for name, learn in [("SentencePiece", _sentencepiece), ("tokenizers", _tokenizers)]:
        try:
            methods[name] = learn(lines, args.target_size)
        except ImportError:
            print(f"{name} left out: not installed", file=sys.stderr)

    print(f"The best of {args.repeats}, CPU time of one core; {encoder.vocab_size:,} subwords.\n")
    print("| | lines/s, first pass | MB/s | lines/s, second pass | MB/s | ids a line |")
    print("|---|---|---|---|---|---|")
    for name, new in methods.items():
        passes = [_two_passes(new(), lines) for _ in range(args.repeats)]
        seconds = [min(times) for times in zip(*passes, strict=True)]
        rates = [(len(lines) / s, megabytes(lines) / s) for s in seconds]
        length = sum(map(len, new()(lines))) / len(lines)
        cells = " | ".join(f"{per_line:,.0f} | {per_byte:.1f}" for per_line, per_byte in rates)
        print(f"| {name} | {cells} | {length:.1f} |", flush=True)


def _two_passes(encode: Encode, lines: list[str]) -> tuple[float, float]:
    return timed(encode, lines)[1], timed(encode, lines)[1]


def _one_by_one(encode: Callable[[str], list[int]]) -> Encode:
    return lambda lines: [encode(line) for line in lines]


def _sentencepiece(lines: list[str], size: int) -> Callable[[], Encode]:
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=size,
        hard_vocab_limit=False,
        minloglevel=2,
    )

    def new() -> Encode:
        processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
        return lambda lines: processor.encode(lines, num_threads=1)

    return new


def _tokenizers(lines: list[str], size: int) -> Callable[[], Encode]:
    import tokenizers
    from tokenizers import models, pre_tokenizers, trainers

    learned = tokenizers.Tokenizer(models.BPE())
    learned.pre_tokenizer = pre_tokenizers.ByteLevel()
    learned.train_from_iterator(
        lines,
        trainers.BpeTrainer(
            vocab_size=size,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )

    def new() -> Encode:
        tokenizer = tokenizers.Tokenizer.from_str(learned.to_str())
        return lambda lines: [text.ids for text in tokenizer.encode_batch_fast(lines)]

    return new


if __name__ == "__main__":
    main()
