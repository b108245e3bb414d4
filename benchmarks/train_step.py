"""Target tokens per second and memory of a training step, compared with other libraries.

    python benchmarks/train_step.py --torch_python=DIR/bin/python --opennmt_python=DIR/bin/python \\
        --keras_hub_python=DIR/bin/python --json=steps.json

A step is forward, backward and Adam's update, with dropout and label smoothing of 0.1, on sentences
without padding, with one table for both languages and the softmax. Each implementation runs in a separate
process: two warm-up steps, then several timed ones. Each round measures all implementations. The table
shows the median of all steps of all rounds, the fastest step, and the CPU seconds of all cores together,
which other load on the machine affects least. With --in_turn the processes of a shape live side by side,
if memory holds them, and step in turn, for machines whose speed changes. "peak" is the rate of matrix
products that TensorFlow reaches on this machine at the same precision; the share of it counts 6 operations
for each position and weight that it is multiplied with (without attention scores: see
`step_of_t2t_keras.py`). Memory is the peak of the process, and the part of it that was used before the
first step: libraries, weights, and Adam's state if it is created early.

Other libraries are in separate environments (PyTorch with transformers; OpenNMT-tf 2 with its
TensorFlow; keras-hub); an implementation whose Python is not given or that fails is reported and skipped.

With --data_dir and --problem, ours also trains on the first batches of real shards, with buckets and
padding; then only real target tokens count.
"""

import argparse
import re
import statistics
import sys

from processes import MODELS, PRECISIONS, Results, measured, measured_in_turn, some_of

WAYS = {
    "ours": ("t2t_keras", False),
    "ours_xla": ("t2t_keras", True),
    "ours_remat": ("t2t_keras", False),
    "marian": ("marian", False),
    "marian_compiled": ("marian", True),
    "opennmt": ("opennmt", False),
    "keras_hub": ("keras_hub", False),
    "keras_hub_xla": ("keras_hub", True),
}
NAMES = {
    "ours": "t2t_keras",
    "ours_xla": "t2t_keras, XLA",
    "ours_remat": "t2t_keras, remat",
    "marian": "Marian, PyTorch",
    "marian_compiled": "Marian, torch.compile",
    "opennmt": "OpenNMT-tf",
    "keras_hub": "KerasHub layers",
    "keras_hub_xla": "KerasHub layers, XLA",
}


def shapes(text: str) -> list[str]:
    """Reads shapes separated by commas; a type for `argparse`."""
    pattern = rf"({'|'.join(MODELS)}):[1-9]\d*x[1-9]\d*"
    names = text.split(",")
    if wrong := [name for name in names if not re.fullmatch(pattern, name)]:
        message = f"{wrong[0]!r} is not a shape of {', '.join(MODELS)}, such as base:32x64"
        raise argparse.ArgumentTypeError(message)
    return names


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    form = "model:rows x tokens a side, such as base:32x64"
    parser.add_argument(
        "--shapes", type=shapes, default="base:32x64,big:8x64", help=f"{form} (%(default)s)"
    )
    parser.add_argument("--precisions", type=some_of(PRECISIONS), default="float32,bfloat16")
    parser.add_argument("--ways", type=some_of(WAYS), default=",".join(WAYS), help="(%(default)s)")
    parser.add_argument("--vocab", type=int, default=33708, help="(%(default)s)")
    parser.add_argument("--steps", type=int, default=5, help="timed in each process (%(default)s)")
    parser.add_argument("--rounds", type=int, default=1, help="(%(default)s)")
    parser.add_argument(
        "--in_turn", action="store_true", help="lets the ways of a shape step in turn"
    )
    parser.add_argument("--torch_python", help="a Python with torch and transformers")
    parser.add_argument("--opennmt_python", help="a Python with OpenNMT-tf")
    parser.add_argument("--keras_hub_python", help="a Python with keras-hub")
    parser.add_argument("--data_dir", help="shards to train on, too")
    parser.add_argument("--problem", help="their problem")
    parser.add_argument("--batches", type=int, default=20, help="of them (%(default)s)")
    parser.add_argument("--json", help="where to write all that was measured")
    args = parser.parse_args()
    pythons = {
        "t2t_keras": sys.executable,
        "marian": args.torch_python,
        "opennmt": args.opennmt_python,
        "keras_hub": args.keras_hub_python,
    }
    results = Results(args.json)
    for number in range(args.rounds):
        for precision in args.precisions:
            peak = spec_of(args, "peak", "tiny:1x1", precision)
            report(results, peak, measured(sys.executable, "step_of_t2t_keras.py", peak))
            for shape in args.shapes:
                jobs = []
                for way in args.ways:
                    library, _ = WAYS[way]
                    if not pythons[library]:
                        if not number:
                            print(f"{NAMES[way]} left out: no Python given", file=sys.stderr)
                        continue
                    spec = spec_of(args, way, shape, precision)
                    jobs.append((pythons[library], f"step_of_{library}.py", spec))
                    if args.data_dir and library == "t2t_keras":
                        real = {
                            key: getattr(args, key) for key in ("data_dir", "problem", "batches")
                        }
                        jobs.append((*jobs[-1][:2], {**spec, **real, "steps": 2}))
                every = measured_in_turn(jobs) if args.in_turn else (measured(*job) for job in jobs)
                for (*_, spec), told in zip(jobs, every, strict=True):
                    report(results, spec, told)
    print_table(results)


def spec_of(args: argparse.Namespace, way: str, shape: str, precision: str) -> dict:
    """Returns the job of one process."""
    model, size = shape.split(":")
    rows, length = map(int, size.split("x"))
    return {
        **MODELS[model],
        "way": way,
        "model": model,
        "precision": precision,
        "compiled": way in WAYS and WAYS[way][1],
        "rows": rows,
        "length": length,
        "vocab": args.vocab,
        "steps": 3 if way == "peak" else args.steps,
    }


def report(results: Results, spec: dict, told: dict) -> None:
    """Adds what was measured, or the reason why it failed."""
    results.append({**spec, **told})
    if "failure" in told:
        print(f"{describe(spec)} left out: {told['failure']}", file=sys.stderr)
        return
    seconds, cpu = (statistics.median(told[name]) for name in ("seconds", "cpu_seconds"))
    line = f"{describe(spec)}: {seconds:.3f} s, {cpu:.3f} CPU s, load {told['load_before']:.1f}"
    print(line, file=sys.stderr, flush=True)


def describe(spec: dict) -> str:
    name = NAMES.get(spec["way"], spec["way"])
    where = spec.get("problem") or f"{spec['rows']}x{spec['length']}"
    return f"{name} {spec['model']} {where} {spec['precision']}"


def print_table(results: list[dict]) -> None:
    """Prints the median of each implementation over all rounds, one row each."""
    grouped: dict[tuple, list[dict]] = {}
    for result in results:
        if "failure" not in result:
            key = (result["precision"], result["model"], result.get("problem"), result["rows"])
            grouped.setdefault((*key, result["length"], result["way"]), []).append(result)
    peaks = {
        key[0]: max(rate for result in group for rate in result["rates"])
        for key, group in grouped.items()
        if key[-1] == "peak"
    }
    operations = {
        key[1]: group[0]["flops_per_position"]
        for key, group in grouped.items()
        if "flops_per_position" in group[0]
    }
    for precision, rate in peaks.items():
        print(f"Matrix products, {precision}: {rate / 1e9:,.0f} GFLOP/s.")
    print(
        "| model | batch | precision | | target tokens/s | step, fastest (s) | CPU (s) | of peak | first (s) | memory (GB) |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for (precision, model, problem, rows, length, way), group in grouped.items():
        if way == "peak":
            continue
        steps = [s for result in group for s in result["seconds"]]
        seconds = statistics.median(steps)
        cpu = statistics.median(s for result in group for s in result["cpu_seconds"])
        tokens, positions = rows * length, 2 * rows * length
        if problem:
            tokens, positions = group[0]["totals"][1], group[0]["totals"][3]
        share = "-"
        if model in operations and precision in peaks:
            share = f"{operations[model] * positions / seconds / peaks[precision]:.0%}"
        first = statistics.median(result["first_seconds"] for result in group)
        peak, loaded = (
            max(result[f"{name}_megabytes"] for result in group) / 1000
            for name in ("peak", "loaded")
        )
        print(
            f"| {model} | {problem or f'{rows} x {length}'} | {precision} | {NAMES[way]} "
            f"| {tokens / seconds:,.0f} | {seconds:.3f}, {min(steps):.3f} | {cpu:.2f} | {share} | {first:.0f} "
            f"| {peak:.1f} ({loaded:.1f} before) |"
        )


if __name__ == "__main__":
    main()
