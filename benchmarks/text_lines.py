"""Helpers of the text benchmarks: lines of files, and CPU time."""

import argparse
import itertools
import os
import time
from collections.abc import Callable
from typing import TypeVar

from processes import existing

from t2t_keras.text import iterate_lines

Result = TypeVar("Result")


def add_text_arguments(parser: argparse.ArgumentParser, lines: int) -> None:
    """Adds the files to read and the number of lines to take."""
    parser.add_argument(
        "files", type=existing, nargs="+", help="text files, plain or .gz, in any languages"
    )
    parser.add_argument(
        "--lines", type=int, default=lines, help="how many different lines to take (%(default)s)"
    )


def different_lines(paths: list[str], number: int) -> list[str]:
    """Takes lines from all files in turn, without duplicates."""
    turns = itertools.zip_longest(*map(iterate_lines, paths))
    lines = dict.fromkeys(line for turn in turns for line in turn if line)
    if len(lines) < number:
        raise SystemExit(f"There are {len(lines)} different lines; --lines={number} wants more.")
    return list(itertools.islice(lines, number))


def describe(lines: list[str]) -> str:
    """Prints the size of the text and the load of the machine."""
    size = megabytes(lines)
    load = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    return f"{len(lines)} lines, {size:.1f} MB of UTF-8. Load average: {load}."


def megabytes(lines: list[str]) -> float:
    """The size of lines in UTF-8, in 10^6 bytes."""
    return sum(len(line.encode("utf-8", "surrogatepass")) for line in lines) / 1e6


def timed(call: Callable[..., Result], *args) -> tuple[Result, float]:
    """Returns a result and its CPU seconds, which other programs hardly affect."""
    start = time.process_time()
    return call(*args), time.process_time() - start
