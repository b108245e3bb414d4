"""Translated tokens per second of our beam search, compared with other libraries on the same shapes.

    python benchmarks/decode.py TEXT --torch_python=DIR/bin/python --opennmt_python=DIR/bin/python \\
        --json=decode.json

The lines of a text are cut into subwords, sorted by length and batched. A model with random weights
translates each batch to exactly as many tokens as its longest sentence has (rounded up to a multiple
of 8), so that all libraries do the same work. (A trained model ends sentences early, and our search then
skips the finished ones: not measured here.) Each library runs in a separate process: one warm-up round
(compile, trace), then timed rounds; the table shows the median round. CTranslate2 runs the export of our
model, in float32 and with 8-bit weights, and the export of OpenNMT-tf's model by its own converter.
"products" makes only the matrix products of our steps.

The time of one sentence is the median over batches of one sentence each.

--profile times the parts of one step of our search instead, and needs no text.
"""

import argparse
import statistics
import sys
from pathlib import Path

from processes import MODELS, PRECISIONS, Results, existing, measured, numbers, some_of

WAYS = {
    "ours": ("t2t_keras", "t2t_keras"),
    "ours_xla": ("t2t_keras", "t2t_keras, XLA"),
    "ours_int8": ("t2t_keras", "t2t_keras, int8"),
    "ours_nbest": ("t2t_keras", "t2t_keras, all hypotheses"),
    "products": ("t2t_keras", "the matrix products of ours"),
    "marian": ("marian", "Marian, PyTorch"),
    "opennmt": ("opennmt", "OpenNMT-tf"),
    "ctranslate2": ("ctranslate2", "CTranslate2, our export"),
    "ctranslate2_int8": ("ctranslate2", "CTranslate2, our export, int8"),
    "ctranslate2_opennmt": ("ctranslate2", "CTranslate2, OpenNMT-tf's export"),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("text", type=existing, nargs="?", help="a sentence a line")
    parser.add_argument("--profile", action="store_true", help="parts of a step of ours, instead")
    parser.add_argument("--sentences", type=int, default=96, help="of it (%(default)s)")
    parser.add_argument("--subwords", type=int, default=8000, help="made of it (%(default)s)")
    parser.add_argument("--model", default="base", choices=MODELS, help="(%(default)s)")
    parser.add_argument("--vocab", type=int, default=33708, help="(%(default)s)")
    parser.add_argument(
        "--batches", type=numbers, default="1,32", help="sentences in a batch (%(default)s)"
    )
    parser.add_argument("--beams", type=numbers, default="1,4", help="(%(default)s)")
    parser.add_argument(
        "--precisions", type=some_of(PRECISIONS), default="float32", help="(%(default)s)"
    )
    parser.add_argument("--ways", type=some_of(WAYS), default=",".join(WAYS), help="(%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="timed (%(default)s)")
    parser.add_argument("--torch_python", help="a Python with torch and transformers")
    parser.add_argument("--opennmt_python", help="a Python with OpenNMT-tf and ctranslate2")
    parser.add_argument("--json", help="where to write all that was measured")
    args = parser.parse_args()
    if args.profile:
        return profile(args)
    if args.text is None:
        parser.error("give a text, or --profile")
    pythons = {
        "t2t_keras": sys.executable,
        "ctranslate2": sys.executable,
        "marian": args.torch_python,
        "opennmt": args.opennmt_python,
    }
    lines = sentences(args.text, args.sentences, args.subwords)
    results = Results(args.json)
    for size in args.batches:
        # All sentences one by one would take too long, so only every size-th is decoded.
        chosen = lines if size > 1 else lines[:: max(1, len(lines) // 12)]
        batches = [chosen[start : start + size] for start in range(0, len(chosen), size)]
        for beam in args.beams:
            for way in args.ways:
                library, name = WAYS[way]
                python = pythons[library]
                exporter = args.opennmt_python if way.endswith("_opennmt") else python
                if not python or not exporter:
                    print(f"{name} left out: no Python given", file=sys.stderr)
                    continue
                ours = library == "t2t_keras"
                for precision in args.precisions if ours else ["float32"]:
                    spec = {
                        **MODELS[args.model],
                        "way": way,
                        "precision": precision,
                        "vocab": args.vocab,
                        "beam": beam,
                        "batches": batches,
                        "rounds": args.rounds,
                        "exporter_python": exporter,
                    }
                    told = measured(python, f"decode_of_{library}.py", spec)
                    results.append({**spec, "batches": len(batches), "size": size, **told})
                    print(describe(results[-1]), file=sys.stderr, flush=True)
    print_table(results)


def profile(args) -> None:
    """Prints a table of the parts of a step for each batch and beam size."""
    shapes = [(batch, beam) for batch in args.batches for beam in args.beams]
    spec = {"way": "ours", "precision": "float32", "vocab": args.vocab, "shapes": shapes}
    spec |= MODELS[args.model]
    told = measured(sys.executable, "decode_profile.py", spec)
    if "failure" in told:
        sys.exit(told["failure"])
    print(f"Memory is read at {told['rate']:.1f} GB/s.\n")
    print("| batch | beam | part | operations | MB | ms | of the memory rate |")
    print("|---|---|---|---|---|---|---|")
    for row in told["rows"]:
        share = row["megabytes"] / row["milliseconds"] / told["rate"]
        print(
            f"| {row['batch']} | {row['beam']} | {row['part']} | {row['operations']} "
            f"| {row['megabytes']:.1f} | {row['milliseconds']:.2f} | {share:.0%} |"
        )


def sentences(path: Path, number: int, subwords: int) -> list[list[int]]:
    """Evenly spaced lines of a text as ids with end of sentence, shortest first."""
    import t2t_keras as t2t

    lines = t2t.text.read_lines(path)
    encoder = t2t.text.SubwordTextEncoder.build_from_generator(lines, subwords)
    lines = lines[:: max(1, len(lines) // number)][:number]
    return sorted(([*encoder.encode(line), 1] for line in lines), key=len)


def describe(result: dict) -> str:
    name = f"{WAYS[result['way']][1]}, {result['precision']}"
    where = f"batch {result['size']}, beam {result['beam']}"
    if "failure" in result:
        return f"{name}, {where} left out: {result['failure']}"
    return f"{name}, {where}: {rate(result):,.0f} tokens/s, load {result['load_before']:.1f}"


def rate(result: dict) -> float:
    """Target tokens per second in the median round."""
    return result["tokens"] / statistics.median(map(sum, result["seconds"]))


def print_table(results: list[dict]) -> None:
    print(
        "| batch | beam | | precision | target tokens/s | sentences/s | a batch, median (s) "
        "| start and first round (s) | memory (GB) |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for result in results:
        if "failure" in result:
            continue
        total = statistics.median(map(sum, result["seconds"]))
        batch = statistics.median(statistics.median(times) for times in result["seconds"])
        print(
            f"| {result['size']} | {result['beam']} | {WAYS[result['way']][1]} | {result['precision']} "
            f"| {rate(result):,.0f} | {result['sentences'] / total:.2f} | {batch:.3f} "
            f"| {result['first_seconds']:.1f} | {result['peak_megabytes'] / 1000:.1f} |"
        )


if __name__ == "__main__":
    main()
