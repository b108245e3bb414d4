"""Sends many requests, and hostile ones, to an exported model with TensorFlow Serving's gRPC protocol.

    python benchmarks/serving.py
    python benchmarks/serving.py --saved_model exported/1 --text newstest2014.en

The server is `prediction_service.py` in this process, with as many threads as there are clients.
Without --saved_model, a small model with random weights is exported first. Memory is that of the
process, including clients, after a warm-up. The exit code is 1 if a request failed, an answer differed
from the first one, memory grew by more than --growth_mb, or hostile input stopped the server.
"""

import argparse
import collections
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

ROOT = Path(__file__).parents[1]
NAME = "model"
HOSTILE = {
    "empty": b"",
    "1 MB of text": b"The quick brown fox. " * 50_000,
    "1 MB without a space": b"x" * 1_000_000,
    "invalid UTF-8": b"caf\xe9 \xff\xfe \xc3",
    "control characters": bytes(range(32)) + b"\x7f",
    "10,000 spaces": b" " * 10_000,
    "escapes of the vocabulary": rb"\u\\1234; __ \9999999999;",
    "right to left, combining, emoji": "\u202e\u0301\u0301 \U0001f469\u200d\U0001f680 \ufffd".encode(),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--saved_model", help="an exported version; a small random one unless given"
    )
    parser.add_argument("--text", help="lines to translate; README.md unless given")
    parser.add_argument("--requests", type=int, default=10_000, help="%(default)s unless given")
    parser.add_argument("--threads", type=int, default=8, help="%(default)s unless given")
    parser.add_argument("--growth_mb", type=float, default=50, help="%(default)s unless given")
    arguments = parser.parse_args()

    lines = Path(arguments.text or ROOT / "README.md").read_bytes().split(b"\n")
    lines = [line for line in lines if 0 < len(line) < 100][:200]
    with tempfile.TemporaryDirectory() as directory:
        path = arguments.saved_model or export_random(directory, lines)
        return measure(path, lines, arguments)


def export_random(directory: str, lines: list[bytes]) -> str:
    """Exports a small model with random weights; its vocabulary is built from the lines."""
    from t2t_keras import Transformer, registry
    from t2t_keras.decoding import DecodeSettings
    from t2t_keras.export import export_saved_model
    from t2t_keras.text import SubwordTextEncoder

    encoder = SubwordTextEncoder.build_from_generator([b.decode() for b in lines], 300)
    size = encoder.vocab_size
    hp = registry.hparams("transformer_tiny,hidden_size=32,filter_size=64,num_heads=2")
    model = Transformer(hp, source_vocab_size=size, target_vocab_size=size)
    settings = DecodeSettings(beam_size=2, extra_length=2, max_input_size=64)
    return export_saved_model(model, {"inputs": encoder, "targets": encoder}, directory, settings)


def measure(path: str, lines: list[bytes], arguments: argparse.Namespace) -> int:
    """Measures and prints the results; returns the exit code."""
    from prediction_service import ServedModel, grpc_server

    start = time.perf_counter()
    models = {NAME: ServedModel(path)}
    print(f"{path}: loaded in {time.perf_counter() - start:.1f} s, {memory():,.0f} MB")
    with grpc_server(models, arguments.threads) as address:
        first = Load(address, lines, len(lines) * 2, arguments.threads).run({})
        load = Load(address, lines, arguments.requests, arguments.threads).run(first.answers)
        print(load.report())
        hostile = send_hostile(address, lines[0], load.answers[lines[0]])
    grown = load.memory[-1] - load.memory[0]
    failed = bool(first.errors or load.errors or load.changed or hostile)
    if grown > arguments.growth_mb:
        print(f"memory grew by {grown:,.0f} MB", file=sys.stderr)
        failed = True
    return int(failed)


class Load:
    """Requests of one line each from several threads, each with its own connection."""

    def __init__(self, address: str, lines: list[bytes], requests: int, threads: int):
        self.address = address
        self.lines = lines
        self.requests = requests
        self.threads = threads
        self.left = iter(range(requests))
        self.lock = threading.Lock()
        self.errors: collections.Counter = collections.Counter()
        self.seconds: list[float] = []
        self.memory: list[float] = []
        self.changed = 0
        self.answers: dict = {}

    def run(self, answers: dict) -> "Load":
        """Sends all requests; compares the results with the known `answers` by line."""
        self.answers = dict(answers)
        self.memory = [memory()]
        start = time.perf_counter()
        threads = [threading.Thread(target=self._send) for _ in range(self.threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.total = time.perf_counter() - start
        self.memory.append(memory())
        return self

    def _send(self) -> None:
        from t2t_keras.errors import UserError
        from t2t_keras.serving import TextClient, connect

        client = TextClient(connect(self.address, NAME, timeout=120), "translate")
        while True:
            with self.lock:
                number = next(self.left, None)
                if number is not None and number % 1000 == 0 and number:
                    self.memory.append(memory())
            if number is None:
                return
            line = self.lines[number % len(self.lines)]
            start = time.perf_counter()
            try:
                (answer,) = client.translate([line])
            except UserError as error:
                with self.lock:
                    self.errors[str(error)] += 1
                continue
            with self.lock:
                self.seconds.append(time.perf_counter() - start)
                self.changed += self.answers.setdefault(line, answer.texts) != answer.texts

    def report(self) -> str:
        times = sorted(self.seconds)
        shown = "; ".join(f"{count} x {error}" for error, count in self.errors.most_common(3))
        return (
            f"{self.requests:,} requests from {self.threads} threads in {self.total:.1f} s, "
            f"{self.requests / self.total:,.0f} a second, "
            f"median {1000 * statistics.median(times):.0f} ms, "
            f"99 % within {1000 * times[int(0.99 * (len(times) - 1))]:.0f} ms\n"
            f"errors: {sum(self.errors.values())}{shown and f' ({shown})'}; "
            f"answers that changed: {self.changed}\n"
            f"memory, at the start, after every 1,000 and at the end: "
            f"{', '.join(f'{m:,.0f}' for m in self.memory)} MB"
        )


def send_hostile(address: str, line: bytes, wanted: list[str]) -> int:
    """Sends hostile inputs, each followed by a normal line; returns how often the normal line failed."""
    from t2t_keras.errors import UserError
    from t2t_keras.serving import TextClient, connect

    client = TextClient(connect(address, NAME, timeout=300), "translate")
    dead = 0
    for name, text in HOSTILE.items():
        start = time.perf_counter()
        try:
            (answer,) = client.translate([text])
            length = len(answer.texts[0])
            outcome = f"{length} characters{', cut' if answer.truncated else ''}"
        except UserError as error:
            outcome = f"refused: {error}"
        print(f"{name}: {outcome}, {time.perf_counter() - start:.2f} s")
        try:
            dead += client.translate([line])[0].texts != wanted
        except UserError as error:
            print(f"the server failed after it: {error}", file=sys.stderr)
            dead += 1
    return dead


def memory() -> float:
    """The memory of this process in megabytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no VmRSS in /proc/self/status")


if __name__ == "__main__":
    sys.exit(main())
