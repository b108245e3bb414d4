"""Kills a training run at random moments, resumes it each time, and compares it with an uninterrupted one.

The task of reversing rows of letters is trained twice with the command itself: once without interruption,
and once killed by SIGKILL --kills times, at any moment: during start, steps, evaluation, and writing or
deleting checkpoints. At the end all variables of both runs must be equal bit for bit, as must every point
of the loss, every evaluation and the best checkpoint. Otherwise the exit code is 1.
"""

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

HPARAMS = (
    "transformer_tiny,hidden_size=32,filter_size=64,num_hidden_layers=1,batch_size=256,max_length=16,"
    "length_bucket_step=2.0,symbol_modality_num_shards=4,learning_rate_warmup_steps=200"
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=20, help="(%(default)s)")
    parser.add_argument("--train_steps", type=int, default=2000, help="(%(default)s)")
    parser.add_argument("--hparams", default="", help="more of them, such as optimizer=adafactor")
    parser.add_argument("--flags", default="", help="of the command, such as --ema=0.99, by spaces")
    parser.add_argument("--seed", type=int, default=0, help="of the moments (%(default)s)")
    parser.add_argument("--directory", help="where to work; by default a temporary directory")
    parser.add_argument(
        "--command",
        default=f"{sys.executable} -m t2t_keras.cli.train",
        help="by spaces (%(default)s)",
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.directory) as name:
        directory = Path(name)
        write_text(directory)
        command = arguments(directory, args)
        start = time.monotonic()
        subprocess.run([*command, f"--output_dir={directory / 'whole'}"], check=True, **QUIET)
        seconds = time.monotonic() - start
        print(f"{args.train_steps} steps without a stop: {seconds:.0f} s", flush=True)
        killed = run_killed(
            command, directory / "killed", args.kills, args.train_steps, seconds, args.seed
        )
        differences = compare(directory / "whole", directory / "killed")
        print("\n".join(differences) or f"After {killed} kills, equal to the run without a stop.")
        sys.exit(bool(differences) or killed < args.kills)


QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def write_text(directory: Path) -> None:
    """Writes the files that the problem `text2text_tmpdir` reads."""
    generator = random.Random(1)
    for split, count in (("train", 3000), ("eval", 60)):
        rows = [generator.choices("abcdefgh", k=generator.randint(2, 7)) for _ in range(count)]
        for side, step in (("inputs", 1), ("targets", -1)):
            text = "".join(" ".join(row[::step]) + "\n" for row in rows)
            (directory / f"{side}.{split}.txt").write_text(text)


def arguments(directory: Path, args: argparse.Namespace) -> list[str]:
    """The command, with flags that make many things happen in little time."""
    return [
        *args.command.split(),
        "--problem=text2text_tmpdir",
        f"--hparams={','.join(filter(None, (HPARAMS, args.hparams)))}",
        f"--data_dir={directory / 'data'}",
        f"--tmp_dir={directory}",
        "--generate_data",
        f"--train_steps={args.train_steps}",
        f"--local_eval_frequency={max(1, args.train_steps // 20)}",
        "--eval_steps=1",
        "--decode_hparams=beam_size=1,extra_length=1",
        "--log_step_count_steps=5",
        "--save_checkpoints_secs=1",
        "--keep_checkpoint_max=3",
        "--xla=off",
        *args.flags.split(),
    ]


def run_killed(
    command: list[str], output_dir: Path, kills: int, steps: int, seconds: float, seed: int
) -> int:
    """Trains to the end, killing the run on the way; returns the number of kills.

    One kill in four comes before the first step; the others come early enough after it that there is time
    for all.

    Args:
        command: the command without the directory of the run.
        output_dir: the directory of the run.
        kills: the number of kills.
        steps: the number of steps of the whole run.
        seconds: the duration of the run without interruption.
        seed: the seed of the random moments.
    """
    moments = random.Random(seed)
    command = [*command, f"--output_dir={output_dir}"]
    killed, starting = 0, 0.0
    while True:
        before = newest(output_dir)
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        ) as process:
            start = time.monotonic()
            lines: list[bytes] = []
            if killed < kills:
                early = starting and moments.random() < 0.25
                patience = moments.uniform(0, starting)
                if not early:
                    lines = until_training(process)
                    starting = time.monotonic() - start
                    patience = moments.uniform(0, 2 * max(1.0, (seconds - starting) / kills))
                limit = steps * (killed + 1) / (kills + 2)
                end = time.monotonic() + patience
                while process.poll() is None and time.monotonic() < end:
                    time.sleep(0.01)
                    if (
                        newest(output_dir) > limit
                    ):  # otherwise the run would end before the last kill
                        end = min(end, time.monotonic() + moments.uniform(0, 0.2))
                        limit = steps
                process.kill()
            error = b"".join([*lines, process.stderr.read()]).decode()
        if process.returncode == 0:
            return killed
        if process.returncode != -9:
            sys.exit(f"The run ended with {process.returncode}: {error[-2000:]}")
        killed += 1
        warned = len(re.findall("^warning: checkpoint", error, re.MULTILINE))
        print(
            f"kill {killed} after {time.monotonic() - start:.1f} s: newest checkpoint "
            f"{before or 'none'} -> {newest(output_dir) or 'none'}"
            + (f", {warned} damaged" if warned else ""),
            flush=True,
        )


def until_training(process: subprocess.Popen) -> list[bytes]:
    """Waits for the first progress line; returns the lines up to it."""
    lines = []
    for line in process.stderr:
        lines.append(line)
        if line.startswith(b"step "):
            break
    return lines


def newest(output_dir: Path) -> int:
    """The step of the newest checkpoint."""
    steps = [int(p.stem.split("-")[1]) for p in output_dir.glob("model.ckpt-*.index")]
    return max(steps, default=0)


def compare(whole: Path, killed: Path) -> list[str]:
    """Returns the differences between two runs, one per line."""
    from t2t_keras import checkpoints

    differences = []
    one, other = (checkpoints.read(str(path)) for path in (whole, killed))
    for name in sorted({*one, *other}):
        if name not in one or name not in other or not np.array_equal(one[name], other[name]):
            differences.append(f"variable {name} differs")
    for file in ("evaluations.jsonl", "best"):
        if (whole / file).read_text() != (killed / file).read_text():
            differences.append(f"{file} differs")
    expected, found = losses(whole), losses(killed)
    for step in sorted({*expected, *found}):
        if expected.get(step) != found.get(step):
            differences.append(f"loss of step {step}: {expected.get(step)}, {found.get(step)}")
    starts = json.loads((killed / "run.json").read_text())["starts"]
    print(
        f"{len(one)} variables, {len(expected)} points of the loss, "
        f"{len((whole / 'evaluations.jsonl').read_text().splitlines())} evaluations compared; "
        f"run.json lists {len(starts)} starts"
    )
    return differences


def losses(run: Path) -> dict[int, set[float]]:
    """The points of the "loss" curve by step; equal points of a step count once."""
    import tensorflow as tf
    from tensorflow.core.util import event_pb2

    points: dict[int, set[float]] = {}
    for path in sorted(run.glob("events.*")):
        records = iter(tf.data.TFRecordDataset(str(path)))
        while True:
            try:
                record = next(records, None)
            except tf.errors.DataLossError:  # the process was killed while it wrote this
                break
            if record is None:
                break
            event = event_pb2.Event.FromString(record.numpy())
            for value in event.summary.value:
                if value.tag == "loss":
                    loss = float(tf.make_ndarray(value.tensor))
                    points.setdefault(event.step, set()).add(loss)
    return points


if __name__ == "__main__":
    main()
