"""Measures the paper's Table 1: types of layers from [1, n, d] to [1, n, d], against n and d.

    python benchmarks/layer_types.py --json=layers.json --plot=docs/layer_types.svg

The types: self-attention; self-attention restricted to a neighbourhood of r; both without their four
projections (the paper counts them so); a plain recurrent layer and an LSTM; convolutions with kernel k,
contiguous, dilated (by k) and separable. All lengths are measured at the first depth, and all depths at
--length_of_depths. Each measurement is a separate process, first forward, then forward and backward
("training": gradients of input and weights), in float32; each round measures all layers. Times are the
median of all steps of all rounds, with the CPU seconds of all cores, which other load on the machine
affects least. Memory is the peak of the process minus what it had before, with libraries loaded and used;
TensorFlow's allocator keeps some of it. For the two kinds of attention the peak memory of tensors is also
given, as TensorFlow counts those of more than 256 KiB.

"Multiplications" are counted by formula, including the projections of attention. "Path" is the number
of steps of a signal from the first position to the last, through as many layers of the type as that
needs: it moves r // 2 positions per layer in restricted attention and (k - 1) / 2 in a convolution, and
the layers of a dilated stack are dilated by 1, k, k^2, and so on.
"""

import argparse
import math
import statistics
import sys

from processes import Results, measured

LAYERS = {
    "self_attention": "self-attention",
    "restricted": "restricted self-attention",
    "self_attention_alone": "self-attention without projections",
    "restricted_alone": "restricted without projections",
    "recurrent": "recurrent",
    "lstm": "recurrent, LSTM",
    "convolution": "convolution",
    "dilated": "convolution, dilated",
    "separable": "convolution, separable",
}
PASSES = ("forward", "training")
SMALLEST = 0.01  # a curve's lowest value, on scales that have no 0
KINDS = {
    "seconds": "time",
    "cpu_seconds": "CPU",
    "tensor_megabytes": "tensors",
    "megabytes": "memory",
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", default=",".join(LAYERS), help="(%(default)s)")
    parser.add_argument("--lengths", default="256,512,1024,2048,4096", help="n (%(default)s)")
    parser.add_argument("--depths", default="512,128,256,1024", help="d (%(default)s)")
    parser.add_argument("--length_of_depths", type=int, default=1024, help="(%(default)s)")
    parser.add_argument("--neighborhood", type=int, default=128, help="r (%(default)s)")
    parser.add_argument("--kernel", type=int, default=3, help="k, odd (%(default)s)")
    parser.add_argument("--steps", type=int, default=5, help="timed in each process (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="(%(default)s)")
    parser.add_argument("--json", help="where to write all that was measured")
    parser.add_argument("--plot", help="a file for the curves; needs matplotlib")
    args = parser.parse_args()
    if args.kernel < 3 or args.kernel % 2 == 0:
        parser.error(f"--kernel must be odd and 3 or more, got {args.kernel}")
    if args.neighborhood < 2:
        parser.error(f"--neighborhood must be 2 or more, got {args.neighborhood}")
    results = Results(args.json)
    for number in range(args.rounds):
        for length, depth in sizes(args):
            for layer in args.layers.split(","):
                add(results, args, number, layer, length, depth)
    rows = summary(results)
    print_table(rows)
    print_comparison(rows)
    if args.plot:
        plot(rows, args)


def sizes(args: argparse.Namespace) -> list[tuple[int, int]]:
    """Pairs of length and depth."""
    lengths, depths = ([int(n) for n in text.split(",")] for text in (args.lengths, args.depths))
    pairs = [(length, depths[0]) for length in lengths]
    pairs += [(args.length_of_depths, depth) for depth in depths if len(depths) > 1]
    return list(dict.fromkeys(pairs))


def add(results: Results, args: argparse.Namespace, number, layer, length, depth) -> None:
    """Measures a layer in a separate process; adds its result, or the reason why it failed."""
    spec = {
        "layer": layer,
        "batch": 1,
        "length": length,
        "depth": depth,
        "neighborhood": args.neighborhood,
        "kernel": args.kernel,
        "steps": args.steps,
        "compare": number == 0,
    }
    told = measured(sys.executable, "layer_of_keras.py", spec)
    results.append({**spec, **told})
    name = f"{LAYERS[layer]}, n = {length}, d = {depth}"
    if "failure" in told:
        print(f"{name} left out: {told['failure']}", file=sys.stderr)
        return
    times = ", ".join(
        f"{1000 * statistics.median(told[way]['seconds']):.1f} ms {way}" for way in PASSES
    )
    print(f"{name}: {times}, load {told['load_before']:.1f}", file=sys.stderr, flush=True)


def multiplications(layer: str, n: int, d: int, r: int, k: int) -> int:
    """Returns the multiplications of a layer's forward pass over n positions."""
    return {
        "self_attention": 4 * n * d**2 + 2 * n**2 * d,
        "restricted": 4 * n * d**2 + 2 * min(r, n) * n * d,
        "self_attention_alone": 2 * n**2 * d,
        "restricted_alone": 2 * min(r, n) * n * d,
        "recurrent": 2 * n * d**2,
        "lstm": 8 * n * d**2,
        "convolution": k * n * d**2,
        "dilated": k * n * d**2,
        "separable": k * n * d + n * d**2,
    }[layer]


def path(layer: str, n: int, r: int, k: int) -> int:
    """The number of steps of a signal from the first of n positions to the last."""
    if layer in ("recurrent", "lstm"):
        return n
    if layer == "dilated":
        layers, reached = 0, 0
        while reached < n - 1:
            reached += (k - 1) // 2 * k**layers
            layers += 1
        return layers
    reach = {"self_attention": n, "restricted": r // 2}
    reach = reach.get(layer.removesuffix("_alone"), (k - 1) // 2)
    return math.ceil((n - 1) / reach)


def summary(results: list[dict]) -> list[dict]:
    """One row for each layer and size: values by formula, and medians of all rounds."""
    grouped: dict[tuple, list[dict]] = {}
    for result in results:
        if "failure" not in result:
            key = (result["layer"], result["length"], result["depth"])
            grouped.setdefault(key, []).append(result)
    rows = []
    for (layer, n, d), group in grouped.items():
        r, k = group[0]["neighborhood"], group[0]["kernel"]
        row = {
            "layer": layer,
            "length": n,
            "depth": d,
            "neighborhood": r,
            "multiplications": multiplications(layer, n, d, r, k),
            "sequential": n if layer in ("recurrent", "lstm") else 1,
            "path": path(layer, n, r, k),
            "difference": max((g["difference"] for g in group if "difference" in g), default=None),
        }
        for way in PASSES:
            for kind in ("seconds", "cpu_seconds"):
                steps = [s for result in group for s in result[way][kind]]
                row[f"{way}_{kind}"] = statistics.median(steps)
            for kind in ("tensor_megabytes", "megabytes"):
                row[f"{way}_{kind}"] = statistics.median(g[way][kind] for g in group)
        rows.append(row)
    return rows


def print_table(rows: list[dict]) -> None:
    print(
        "| layer | n | d | multiplications (million) | sequential steps | path "
        "| forward, CPU (ms) | training, CPU (ms) "
        "| memory: forward, training (MB) |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        times = " | ".join(
            f"{1000 * row[f'{way}_seconds']:,.1f}, {1000 * row[f'{way}_cpu_seconds']:,.1f}"
            for way in PASSES
        )
        memory = ", ".join(f"{row[f'{way}_megabytes']:,.0f}" for way in PASSES)
        print(
            f"| {LAYERS[row['layer']]} | {row['length']} | {row['depth']} "
            f"| {row['multiplications'] / 1e6:,.2f} | {row['sequential']} | {row['path']} "
            f"| {times} | {memory} |"
        )


def print_comparison(rows: list[dict]) -> None:
    """Prints the factors by which restricted attention takes less than full attention."""
    found = {(row["layer"], row["length"], row["depth"]): row for row in rows}
    for row in rows:
        size = row["length"], row["depth"]
        full = found.get((row["layer"].replace("restricted", "self_attention"), *size))
        if not row["layer"].startswith("restricted") or not full:
            continue
        shares = []
        for way in PASSES:
            for kind, what in KINDS.items():
                key = f"{way}_{kind}"
                shares.append(f"{what} {full[key] / max(row[key], 1e-9):.1f} ({way})")
        print(
            f"\nFull over {LAYERS[row['layer']]}, r = {row['neighborhood']}, n = {size[0]}, d = {size[1]}: "
            f"{', '.join(shares)}"
        )
        if row["difference"] is not None:
            print(f"Their values differ by {row['difference']:.1e} of the greatest.")


def plot(rows: list[dict], args: argparse.Namespace) -> None:
    """Plots multiplications, time and memory of training against n, and time against d."""
    try:
        import matplotlib
    except ImportError:
        sys.exit("--plot needs matplotlib: pip install 't2t-keras[plot]'")
    matplotlib.use("agg")
    matplotlib.rcParams["svg.hashsalt"] = "layer_types"
    import matplotlib.pyplot as plt

    (_, first_depth), *_ = sizes(args)
    panels = [
        ("multiplications (million)", "length", "multiplications", 1e-6),
        ("training step (ms)", "length", "training_seconds", 1e3),
        ("memory of a training step (MB)", "length", "training_megabytes", 1),
        ("training step (ms)", "depth", "training_seconds", 1e3),
    ]
    figure, grid = plt.subplots(2, 2, figsize=(9, 6.4), layout="constrained")
    for axes, (title, against, value, unit) in zip(grid.flat, panels, strict=True):
        fixed, at = (
            ("depth", first_depth) if against == "length" else ("length", args.length_of_depths)
        )
        ticks = sorted({row[against] for row in rows if row[fixed] == at})
        if not ticks:
            axes.set_axis_off()
            continue
        for layer in args.layers.split(","):
            if layer.endswith("_alone"):
                continue
            points = [
                (row[against], max(unit * row[value], SMALLEST))
                for row in rows
                if row["layer"] == layer and row[fixed] == at
            ]
            dashed = "--" if layer in ("dilated", "lstm") else "-"
            x, y = zip(*sorted(points), strict=True) if points else ((), ())
            axes.plot(x, y, dashed, marker=".", label=LAYERS[layer])
        axes.set(xscale="log", yscale="log", title=title)
        axes.set_xlabel(
            f"{'n' if against == 'length' else 'd'} ({'d' if fixed == 'depth' else 'n'} = {at})"
        )
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.set_xticks([], minor=True)
        axes.grid(alpha=0.3)
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    figure.savefig(args.plot, metadata={"Date": None})


if __name__ == "__main__":
    main()
