"""Runs the benchmarks one after another and writes their results into a page.

    python benchmarks/report.py docs/performance.md --text raw/train.en.gz raw/train.de.gz \\
        --torch_python=torch/bin/python

A section of the page is between `<!-- measured: NAME -->` and `<!-- end of NAME -->`. It is replaced by
the command, the machine, the date and the load, the versions of our packages and of the compared ones,
what was left out and why, and the tables. Everything else on the page is kept, including the sections of
benchmarks that were not run or failed. The page is written after each benchmark.

Without --text the benchmarks that read it are skipped.
Other libraries are measured if their Pythons are given (see `train_step.py`) or if they are installed
beside ours. The machine should be otherwise idle. Exit code 1 if a benchmark failed.
"""

import argparse
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import machine
from processes import existing, some_of

from t2t_keras.files import atomic_write

HERE = Path(__file__).parent
OURS = ("tensorflow", "keras")
LEFT_OUT = " left out: "


class Inputs(NamedTuple):
    """The inputs of the benchmarks, as passed to them or as shown on the page."""

    text: list[str]
    pythons: dict[str, str]

    def shown(self) -> "Inputs":
        """Returns the inputs with paths of this machine replaced by generic names."""
        return Inputs(
            text=[Path(path).name for path in self.text],
            pythons={name: f"{name}/bin/python" for name in self.pythons},
        )

    def flags(self, *names: str) -> list[str]:
        """The flags for the other libraries' Pythons that were given."""
        return [f"--{name}_python={self.pythons[name]}" for name in names if name in self.pythons]


class Benchmark(NamedTuple):
    """A section: the program and its arguments, for a full run and for a quick try."""

    script: str
    arguments: Callable[[Inputs], list[str]]
    quick: str
    needs: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    """Packages that are measured beside ours, in the same Python."""
    pythons: tuple[str, ...] = ()
    """Names of other libraries' Pythons, see `OTHERS`."""


OTHERS = {
    "torch": ("torch", "transformers"),
    "opennmt": ("OpenNMT-tf", "tensorflow", "tensorflow-cpu", "ctranslate2"),
    "keras_hub": ("keras-hub", "keras", "tensorflow"),
}
"""Packages whose versions count, by whose Python they are in."""

BENCHMARKS = {
    "text_encoding": Benchmark(
        "encode.py",
        lambda given: [*given.text, "--lines=50000", "--target_size=8192"],
        quick="--lines=150 --target_size=200 --repeats=1",
        needs=("text",),
        beside=("sentencepiece", "tokenizers"),
    ),
    "training_step": Benchmark(
        "train_step.py",
        lambda given: [
            "--shapes=base:32x64,big:8x64",
            "--steps=4",
            *given.flags("torch", "opennmt", "keras_hub"),
        ],
        quick="--shapes=tiny:2x8 --vocab=300 --steps=2 --precisions=float32",
        pythons=("torch", "opennmt", "keras_hub"),
    ),
    "translation": Benchmark(
        "decode.py",
        lambda given: [given.text[-1], *given.flags("torch", "opennmt")],
        quick="--model=tiny --vocab=2000 --sentences=4 --subwords=200 --batches=2 --beams=2 --rounds=1",
        needs=("text",),
        beside=("ctranslate2",),
        pythons=("torch", "opennmt"),
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("page", type=existing, help="Markdown with sections to replace")
    parser.add_argument(
        "--only", type=some_of(BENCHMARKS), help=f"some of {','.join(BENCHMARKS)}; all unless given"
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that all runs")
    parser.add_argument(
        "--text", type=existing, nargs="+", default=[], help="text files, plain or .gz"
    )
    for name, packages in OTHERS.items():
        parser.add_argument(f"--{name}_python", help=f"a Python with {packages[0]}")
    args = parser.parse_args()
    pythons = {name: getattr(args, f"{name}_python") for name in OTHERS}
    given = Inputs(
        [*map(str, args.text)], {name: python for name, python in pythons.items() if python}
    )
    names = args.only or list(BENCHMARKS)
    page = args.page.read_text("utf-8")
    for name in names:
        try:
            replaced(page, name, "")
        except ValueError as error:
            parser.error(f"{args.page}: {error}")
    failed = False
    for name in names:
        missing = [f"--{need}" for need in BENCHMARKS[name].needs if not getattr(given, need)]
        if missing:
            print(f"{name}{LEFT_OUT}give {' and '.join(missing)}", file=sys.stderr)
            continue
        section = measured(BENCHMARKS[name], given, args.quick)
        if section is None:
            print(f"{name} failed: its section stays as it is", file=sys.stderr)
            failed = True
            continue
        # Read again, because the page may have been edited meanwhile.
        page = replaced(args.page.read_text("utf-8"), name, section)
        with atomic_write(args.page) as partial:
            partial.write_text(page, "utf-8")
        print(f"{args.page}: {name} written", flush=True)
    return int(failed)


def replaced(page: str, name: str, section: str) -> str:
    """Returns the page with the text between the marks of a section replaced.

    Raises:
        ValueError: the page does not have each mark exactly once, in this order.
    """
    marks = f"<!-- measured: {name} -->", f"<!-- end of {name} -->"
    if [page.count(mark) for mark in marks] != [1, 1] or page.index(marks[0]) > page.index(
        marks[1]
    ):
        raise ValueError(f"needs one {marks[0]} and below it one {marks[1]}")
    before, rest = page.split(marks[0])
    after = rest.split(marks[1])[1]
    return f"{before}{marks[0]}\n\n{section.strip()}\n\n{marks[1]}{after}"


def measured(benchmark: Benchmark, given: Inputs, quick: bool) -> str | None:
    """Runs a benchmark and returns its section, or None if it failed."""
    extra = benchmark.quick.split() if quick else []
    command = [sys.executable, str(HERE / benchmark.script), *benchmark.arguments(given), *extra]
    where = machine.describe()
    print(f"Running {shlex.join(command)}", file=sys.stderr, flush=True)
    left_out: dict[str, None] = {}
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        program = subprocess.Popen(command, stdout=output, stderr=subprocess.PIPE, text=True)
        assert program.stderr
        for line in program.stderr:
            print(f"  {line}", end="", file=sys.stderr, flush=True)
            if LEFT_OUT in line:
                left_out[line.strip()] = None
        if program.wait():
            return None
        output.seek(0)
        told = output.read()
    shown = ["python", f"benchmarks/{benchmark.script}", *benchmark.arguments(given.shown())]
    lines = [f"`{shlex.join([*shown, *extra])}`", "", f"{where} {_versions(benchmark, given)}"]
    if left_out:
        lines += ["", f"{'; '.join(left_out)}."]
    return "\n".join([*lines, "", markdown(told)])


def markdown(text: str) -> str:
    """Returns a benchmark's output with an empty line between tables and sentences."""
    lines: list[str] = []
    for line in text.strip().splitlines():
        if lines and lines[-1] and line and line.startswith("|") != lines[-1].startswith("|"):
            lines.append("")
        lines.append(line.rstrip())
    return "\n".join(lines)


def _versions(benchmark: Benchmark, given: Inputs) -> str:
    """Returns sentences with the versions of our packages and of the compared ones."""
    found = [machine.versions(sys.executable, (*OURS, *benchmark.beside))]
    found += [
        machine.versions(given.pythons[name], OTHERS[name])
        for name in benchmark.pythons
        if name in given.pythons
    ]
    parts = [", ".join(f"{name} {version}" for name, version in one.items()) for one in found]
    return f"{'; beside it '.join(part for part in parts if part)}."


if __name__ == "__main__":
    sys.exit(main())
