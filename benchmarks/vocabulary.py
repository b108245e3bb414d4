"""Time and memory to build a subword vocabulary, compared with T2T's algorithm in plain Python.

Both must give the same subtokens. Each runs in a separate process.
"""

import argparse
import multiprocessing
import resource
import statistics
from typing import NamedTuple

import plain_t2t
from text_lines import add_text_arguments, describe, different_lines, timed

from t2t_keras.text import subword_builder, tokenizer


class Figures(NamedTuple):
    """The cost of one method in CPU seconds and MiB, and the vocabularies that it built."""

    token_count: int
    counting: list[float]
    vocabularies: dict[int, list[str]]
    building: dict[int, list[float]]
    peak: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_text_arguments(parser, lines=200_000)
    parser.add_argument(
        "--target_size",
        type=int,
        action="append",
        help="wanted number of subtokens, may be given again (32768 and 8192)",
    )
    parser.add_argument("--repeats", type=int, default=3, help="of ours (%(default)s)")
    parser.add_argument(
        "--ours_only", action="store_true", help="leave out plain Python, which takes minutes"
    )
    args = parser.parse_args()
    sizes = args.target_size or [32768, 8192]

    print(describe(different_lines(args.files, args.lines)))
    ours = _in_own_process(_ours, args.files, args.lines, sizes, args.repeats)
    _print("t2t_keras", ours)
    if not args.ours_only:
        plain = _in_own_process(_plain, args.files, args.lines, sizes, 1)
        _print("plain Python", plain)
        assert plain.vocabularies == ours.vocabularies
        print("Same subtokens. Times as fast, with counting:")
        for size in sizes:
            ratio = _total(plain, size) / _total(ours, size)
            print(f"  {size}: {ratio:.1f}")


def _in_own_process(method, *args) -> Figures:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(method, args)


def _ours(paths: list[str], number: int, sizes: list[int], repeats: int) -> Figures:
    build = subword_builder.build_to_target_size
    return _measure(tokenizer.count, build, paths, number, sizes, repeats)


def _plain(paths: list[str], number: int, sizes: list[int], repeats: int) -> Figures:
    build = plain_t2t.build_to_target_size
    return _measure(plain_t2t.count_tokens, build, paths, number, sizes, repeats)


def _measure(count, build, paths, number, sizes, repeats) -> Figures:
    lines = different_lines(paths, number)
    counting, building, vocabularies = [], {size: [] for size in sizes}, {}
    for _ in range(repeats):
        tokens, seconds = timed(count, lines)
        counting.append(seconds)
        for size in sizes:
            vocabularies[size], seconds = timed(build, tokens, size)
            building[size].append(seconds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    return Figures(len(tokens), counting, vocabularies, building, peak)


def _total(figures: Figures, size: int) -> float:
    return statistics.median(figures.counting) + statistics.median(figures.building[size])


def _print(name: str, figures: Figures) -> None:
    print(
        f"{name}, CPU seconds (median of {len(figures.counting)}): "
        f"{statistics.median(figures.counting):.2f} to count {figures.token_count} different tokens"
    )
    for size, seconds in figures.building.items():
        print(
            f"  {size}: {statistics.median(seconds):.2f} to build "
            f"{len(figures.vocabularies[size])} subtokens, {_total(figures, size):.2f} in all"
        )
    print(f"  peak memory {figures.peak:.0f} MiB, the lines included", flush=True)


if __name__ == "__main__":
    main()
