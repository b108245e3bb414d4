"""Seconds from start to first result, for the commands and in Python, by part.

    python benchmarks/startup.py --opennmt_python=DIR/bin/python

Each measurement is a separate process. The last column is relative to `python -c 'import tensorflow'`,
since machines differ. Commands run on the tests' toy (reversing rows of letters, two layers of 64) with
the model after one step, which never ends a sentence, so outputs have the maximal length. `base` is the
paper's base model on 32 x 64 tokens per side.

--rounds takes the median of several; --only names some of the measurements.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from processes import MODELS, measured, some_of

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "tests"))
BASE = {"rows": 32, "length": 64, "vocab": 33708, "precision": "float32", "compiled": False}
ROWS = ["a b c d", "h g f e d", "a a b"]
"""Another length each; the last two are a batch."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", type=some_of(MEASUREMENTS), default=",".join(MEASUREMENTS), help="(%(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=1, help="(%(default)s)")
    parser.add_argument("--opennmt_python", help="a Python with OpenNMT-tf, for its first step")
    parser.add_argument("--inside", nargs=2, help=argparse.SUPPRESS)  # measurement, directory
    args = parser.parse_args()
    if args.inside:
        name, directory = args.inside
        print(json.dumps(INSIDE[name](Path(directory))))
        return
    with tempfile.TemporaryDirectory() as directory:
        prepare(Path(directory))
        found: dict[str, list[float]] = {}
        for _ in range(args.rounds):
            for name in ["import tensorflow", *args.only]:
                parts = measure(name, Path(directory), args.opennmt_python)
                for part, seconds in parts.items():
                    label = f"{name}: {part}" if part else name
                    found.setdefault(label, []).append(seconds)
                    print(f"{label}: {seconds:.2f} s", file=sys.stderr, flush=True)
    medians = {label: statistics.median(seconds) for label, seconds in found.items()}
    unit = medians["import tensorflow"]
    print("| | seconds | imports of TensorFlow |\n|---|---|---|")
    for label, seconds in medians.items():
        print(f"| {label} | {seconds:.2f} | {seconds / unit:.2f} |")


def prepare(directory: Path) -> None:
    """Makes the toy's data, a trained model and its export."""
    import toy

    toy.generate(directory)
    command("train", *train_flags(directory, "run"))
    command("export", *model_flags(directory), f"--export_dir={directory}/export")


def train_flags(directory: Path, run: str) -> list[str]:
    import toy

    return [
        f"--problem={toy.PROBLEM}",
        f"--hparams={toy.hparams()}",
        f"--data_dir={directory}/data",
        f"--output_dir={directory}/{run}",
        "--train_steps=1",
    ]


def model_flags(directory: Path) -> list[str]:
    return [f"--data_dir={directory}/data", f"--output_dir={directory}/run"]


def measure(name: str, directory: Path, opennmt_python: str | None) -> dict[str, float]:
    """Seconds of one measurement by part; "" is the whole."""
    if name == "import tensorflow":
        return {"": timed([sys.executable, "-c", "import tensorflow"])}
    return MEASUREMENTS[name](directory, opennmt_python)


def decode(directory: Path, _) -> dict[str, float]:
    """One sentence from the command line."""
    (directory / "one.txt").write_text(ROWS[0] + "\n")
    (directory / "one.out").unlink(missing_ok=True)
    flags = [f"--decode_from_file={directory}/one.txt", f"--decode_to_file={directory}/one.out"]
    return {"": command("decode", *model_flags(directory), *flags)}


def train(directory: Path, _) -> dict[str, float]:
    """The first step and the evaluation after it, from the command line."""
    with tempfile.TemporaryDirectory(dir=directory) as run:
        seconds = command("train", *train_flags(directory, Path(run).name))
        [start] = json.loads(Path(run, "run.json").read_text())["starts"]
    return {"step and evaluation": seconds, **start["seconds"]}


def export(directory: Path, _) -> dict[str, float]:
    """A SavedModel from the command line."""
    with tempfile.TemporaryDirectory(dir=directory) as target:
        return {"": command("export", *model_flags(directory), f"--export_dir={target}")}


def inside(name: str):
    """A measurement that runs in a process of this program."""

    def run(directory: Path, _) -> dict[str, float]:
        program = [sys.executable, __file__, "--inside", name, str(directory)]
        done = subprocess.run(program, capture_output=True, text=True, check=True)
        return json.loads(done.stdout.splitlines()[-1])

    return run


def base(directory: Path, opennmt_python: str | None) -> dict[str, float]:
    """The first step of the base model, ours and OpenNMT-tf's, from the start of a process."""
    pythons = {"t2t_keras": sys.executable, "opennmt": opennmt_python}
    seconds = {}
    for library, python in pythons.items():
        if python:
            spec = {**MODELS["base"], **BASE, "way": "ours", "steps": 1, "started": time.time()}
            told = measured(python, f"step_of_{library}.py", spec)
            seconds[f"{library}, start to first step"] = told["since_start"]
            seconds[f"{library}, first step"] = told["first_seconds"]
            seconds[f"{library}, later step"] = told["seconds"][0]
    return seconds


def translate_inside(directory: Path) -> dict[str, float]:
    """Calls of `Translator.translate` within one process."""
    import toy

    import t2t_keras as t2t

    encoders = t2t.registry.problem(toy.PROBLEM).get_feature_encoders(str(directory / "data"))
    model = t2t.checkpoints.load_model(t2t.checkpoints.resolve(str(directory / "run")))
    translator = t2t.decoding.Translator(model, encoders)
    calls = {
        "first call": ROWS[:1],
        "again": ROWS[:1],
        "another length": ROWS[1:2],
        "another batch": ROWS[1:],
    }
    return {
        name: elapsed(lambda lines=lines: translator.translate(lines))
        for name, lines in calls.items()
    }


def load_inside(directory: Path) -> dict[str, float]:
    """Loads an export with only TensorFlow, and translates with it."""
    start = time.perf_counter()
    import tensorflow as tf

    imported = time.perf_counter() - start
    [version] = (directory / "export").iterdir()
    loaded = []
    seconds = elapsed(lambda: loaded.append(tf.saved_model.load(str(version))))
    serve = loaded[0].signatures["serving_default"]
    [feature] = serve.structured_input_signature[1]
    first = elapsed(lambda: serve(**{feature: tf.constant(ROWS[:1])}))
    return {"import": imported, "load": seconds, "first translation": first}


def base_parts_inside(_: Path) -> dict[str, float]:
    """The first step of the base model by part."""
    parts = {}
    start = time.perf_counter()
    import step_of_t2t_keras as ours
    import tensorflow as tf

    parts["imports"] = time.perf_counter() - start
    engines = []
    spec = {**MODELS["base"], **BASE, "way": "ours"}
    parts["model and optimizer"] = elapsed(lambda: engines.append(ours.make_engine(spec)))
    step = engines[0]._train_step
    ids = tf.ones([BASE["rows"], BASE["length"]], tf.int32)
    batch = {"inputs": ids, "targets": ids}
    parts["forward and backward, first"] = elapsed(lambda: step.forward_backward(batch))
    parts["forward and backward, again"] = elapsed(lambda: step.forward_backward(batch))
    iterator = iter(tf.data.Dataset.from_tensors(batch).repeat())
    parts["whole step, first"] = elapsed(lambda: engines[0].train(iterator, 1))
    parts["whole step, again"] = elapsed(lambda: engines[0].train(iterator, 1))
    return parts


INSIDE = {"translate": translate_inside, "load": load_inside, "base_parts": base_parts_inside}
MEASUREMENTS = {
    "decode": decode,
    "translate": inside("translate"),
    "train": train,
    "export": export,
    "load": inside("load"),
    "base": base,
    "base_parts": inside("base_parts"),
}


def command(name: str, *flags: str) -> float:
    return timed([sys.executable, "-m", f"t2t_keras.cli.{name}", *flags])


def timed(program: list[str]) -> float:
    start = time.perf_counter()
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return time.perf_counter() - start


def elapsed(work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if __name__ == "__main__":
    main()
