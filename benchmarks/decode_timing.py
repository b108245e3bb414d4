"""Protocol between `decode.py` and the programs it starts: job in, timings out. Needs only Python."""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from step_timing import peak_megabytes

ALPHA = 0.6

Decode = Callable[[list[list[int]], int], int]
"""`decode(sentences, length)` makes every output that long and returns the tokens it made."""


def answer(make_decode: Callable[[dict[str, Any]], tuple[Decode, dict[str, Any]]]) -> None:
    """Times the decode function for the command line's JSON job, and prints JSON.

    `make_decode(spec)` returns a function that decodes a batch, and facts to add to the answer.
    """
    start = time.perf_counter()
    spec = json.loads(sys.argv[1])
    decode, facts = make_decode(spec)
    batches = [(batch, output_length(batch)) for batch in spec["batches"]]
    for batch, length in batches:
        made, wanted = decode(batch, length), length * len(batch)
        if made != wanted:
            sys.exit(f"{made} tokens made, {wanted} wanted")
    first = time.perf_counter() - start
    seconds = []
    for _ in range(spec["rounds"]):
        times = []
        for batch, length in batches:
            start = time.perf_counter()
            decode(batch, length)
            times.append(time.perf_counter() - start)
        seconds.append(times)
    result = {
        "first_seconds": first,
        "seconds": seconds,
        "tokens": sum(length * len(batch) for batch, length in batches),
        "sentences": sum(len(batch) for batch, _ in batches),
        "peak_megabytes": peak_megabytes(),
    }
    print(json.dumps({**result, **facts}))


def output_length(batch: list[list[int]]) -> int:
    """Returns the longest sentence's length rounded up to a multiple of 8, which limits retracing."""
    return -(-max(map(len, batch)) // 8) * 8


def padded(batch: list[list[int]]) -> list[list[int]]:
    """Rows of the same length, 0 where a sentence is shorter."""
    length = max(map(len, batch))
    return [ids + [0] * (length - len(ids)) for ids in batch]
