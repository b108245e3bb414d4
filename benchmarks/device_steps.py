"""Times a training step, a decoding step and a search on one device: our network on JAX, and PyTorch's.

    python benchmarks/device_steps.py --torch_python=torch/bin/python --json=device.json

Meant for a GPU; does not need TensorFlow. Without a GPU it measures the CPU and says so. Both
networks are the same: layer normalisation before each sub-layer, one table for both languages and
the softmax, dropout and label smoothing of 0.1, Adam. PyTorch's (`torch_transformer.py`) uses its
fused attention and Adam, and runs both eagerly and with `torch.compile`. Ours is one `jax.jit` of
`stateless_call`, the gradient and `stateless_apply`.

A training step is forward, backward and update on rows without padding. A decoding step computes the
next token's logits for four hypotheses of each sentence, in the middle of a search: --length positions
of the source, half as many decoded. PyTorch's step also copies the keys and values of the hypotheses
that are continued, which ours does not need. Choosing tokens is not included. A search (only ours)
is a whole beam search: --length tokens for each sentence, including encoder and choice of tokens.

In bfloat16, weights are float32 and products mixed; in float32, both use TensorFloat-32 if the
device has it. "Of peak" is the share of the matmul rate that JAX reaches here at the same precision; it
counts 6 operations for each position and weight in training and 2 in decoding.
"""

import argparse
import statistics
import sys

from processes import MODELS, PRECISIONS, Results, measured, some_of

WAYS = {
    "jax": ("jax", "t2t_keras, JAX"),
    "torch": ("torch", "PyTorch"),
    "torch_compiled": ("torch", "PyTorch, torch.compile"),
}
KINDS = {"train": "training", "decode": "decoding", "search": "beam search"}
HYPOTHESES = 4
PRODUCTS = 10


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=some_of(MODELS), default="base,big", help="(%(default)s)")
    parser.add_argument("--rows", type=int, help="sentences (32; 8 without a GPU)")
    parser.add_argument("--length", type=int, default=64, help="tokens a side (%(default)s)")
    parser.add_argument("--precisions", type=some_of(PRECISIONS), default="float32,bfloat16")
    parser.add_argument(
        "--kinds", type=some_of(KINDS), default=",".join(KINDS), help="(%(default)s)"
    )
    parser.add_argument("--ways", type=some_of(WAYS), default=",".join(WAYS), help="(%(default)s)")
    parser.add_argument("--vocab", type=int, default=33708, help="(%(default)s)")
    parser.add_argument("--steps", type=int, help="timed (10; 3 without a GPU)")
    parser.add_argument("--torch_python", help="a Python with torch")
    parser.add_argument("--json", help="where to write all that was measured")
    args = parser.parse_args()
    pythons = {"jax": sys.executable, "torch": args.torch_python}
    results = Results(args.json)
    for precision in args.precisions:
        spec = {**spec_of(args, "jax", "peak", "tiny", precision), "rows": 1, "steps": PRODUCTS}
        peak = add(results, sys.executable, spec)
        args.rows = args.rows or (32 if peak.get("gpu") else 8)
        args.steps = args.steps or (10 if peak.get("gpu") else 3)
        for model in args.models:
            for kind in args.kinds:
                for way in args.ways:
                    library, name = WAYS[way]
                    if kind == "search" and library != "jax":
                        continue
                    if not pythons[library]:
                        print(f"{name} left out: no Python given", file=sys.stderr)
                        continue
                    add(results, pythons[library], spec_of(args, way, kind, model, precision))
    print_table(results)


def spec_of(args: argparse.Namespace, way: str, kind: str, model: str, precision: str) -> dict:
    """Returns the job of one process."""
    return {
        **MODELS[model],
        "way": way,
        "kind": kind,
        "model": model,
        "precision": precision,
        "compiled": way == "torch_compiled",
        "rows": args.rows,
        "length": args.length,
        "hypotheses": HYPOTHESES,
        "vocab": args.vocab,
        "steps": args.steps,
    }


def add(results: Results, python: str, spec: dict) -> dict:
    """Measures in a separate process; adds and returns its result, or the reason why it failed."""
    library, name = WAYS[spec["way"]]
    kind = "peak" if spec["kind"] == "peak" else "step"
    told = measured(python, f"device_{kind}_of_{library}.py", spec)
    results.append({**spec, **told})
    what = f"{name}, {spec['kind']}, {spec['model']}, {spec['precision']}"
    if "failure" in told:
        print(f"{what} left out: {told['failure']}", file=sys.stderr)
        return told
    seconds = statistics.median(told["seconds"])
    print(f"{what}: {1000 * seconds:.1f} ms", file=sys.stderr, flush=True)
    return told


def operations(result: dict) -> float:
    """Floating-point operations of a step, without the attention products."""
    hidden, inner, layers = result["hidden"], result["filter"], result["layers"]
    feed_forward, attention = 2 * hidden * inner, 4 * hidden**2
    encoder = layers * (attention + feed_forward)
    # In decoding the memory's keys and values, half of an attention's matrices, are already computed.
    decoder = layers * (2 * attention + feed_forward) + result["vocab"] * hidden
    if result["kind"] == "train":
        return 6.0 * result["rows"] * result["length"] * (encoder + decoder)
    decoder -= layers * attention // 2
    step = 2.0 * result["rows"] * result["hypotheses"] * decoder
    if result["kind"] == "search":
        return result["length"] * (step + 2.0 * result["rows"] * encoder)
    return step


def print_table(results: list[dict]) -> None:
    results = [result for result in results if "failure" not in result]
    if not results:
        sys.exit("Nothing could be measured.")
    devices = dict.fromkeys(result["device"] for result in results)
    has_gpu = any(result["gpu"] for result in results)
    print(f"On {', '.join(devices)}{'' if has_gpu else ': no GPU was at hand'}.")
    peaks = {r["precision"]: max(r["rates"]) for r in results if r["kind"] == "peak"}
    for precision, rate in peaks.items():
        print(f"Matrix products, {precision}: {rate / 1e12:,.2f} TFLOP/s.")
    print(
        "| step | model | batch | precision | | target tokens/s | step, fastest (ms) | of peak "
        "| first (s) | memory (GB) |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for result in results:
        if result["kind"] == "peak":
            continue
        seconds = statistics.median(result["seconds"])
        share = "-"
        if result["precision"] in peaks:
            share = f"{operations(result) / seconds / peaks[result['precision']]:.0%}"
        memory = result.get("device_megabytes") or result["peak_megabytes"]
        print(
            f"| {KINDS[result['kind']]} | {result['model']} | {result['rows']} x {result['length']} "
            f"| {result['precision']} | {WAYS[result['way']][1]} | {result['made'] / seconds:,.0f} "
            f"| {1000 * seconds:.1f}, {1000 * min(result['seconds']):.1f} | {share} "
            f"| {result['first_seconds']:.0f} | {memory / 1000:.1f} |"
        )


if __name__ == "__main__":
    main()
