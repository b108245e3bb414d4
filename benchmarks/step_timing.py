"""Protocol between `train_step.py` and the programs it starts: job in, timings out. Needs only Python."""

import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

LABEL_SMOOTHING = 0.1
DROPOUT = 0.1
LEARNING_RATE = 1e-4
TURN = "turn\n"
"""What a process says before each step when others step in between; it waits for a line then."""


def answer(make_step: Callable[[dict[str, Any]], tuple[Callable[[], Any], dict[str, Any]]]) -> None:
    """Times the step for the command line's JSON job, and prints JSON.

    `make_step(spec)` returns a function that runs one step and waits for its end, and facts to add to the
    answer.
    """
    spec = json.loads(sys.argv[1])
    step, facts = make_step(spec)
    loaded = peak_megabytes()
    start = time.perf_counter()
    step()
    first = time.perf_counter() - start
    since_start = time.time() - spec.get("started", time.time())
    step()  # in some libraries the second step compiles again or is slower
    seconds, cpu_seconds = [], []
    for _ in range(spec["steps"]):
        if spec.get("in_turn"):
            print(TURN, end="", flush=True)
            sys.stdin.readline()
        start, cpu_start = time.perf_counter(), time.process_time()
        step()
        seconds.append(time.perf_counter() - start)
        cpu_seconds.append(time.process_time() - cpu_start)
    result = {
        "first_seconds": first,
        "since_start": since_start,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "tokens": spec["rows"] * spec["length"],
        "loaded_megabytes": loaded,
        "peak_megabytes": peak_megabytes(),
    }
    print(json.dumps({**result, **facts}))


def peak_megabytes() -> float:
    """The peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
