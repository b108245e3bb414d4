"""Estimates data-parallel efficiency: the share of n devices' speed that is left after summing gradients.

    python benchmarks/scaling.py --rate=100 --tokens=4096

A step's arithmetic on one device takes 6 operations for each weight and target token (2 forward, 4
backward; as many source tokens as target tokens, each seeing half of the weights). A ring of n devices
sends and receives 4 bytes per weight 2 (n - 1) / n times. Our step sums gradients after the backward
pass, in float32, without overlap. So efficiency is compute / (compute + reduce), and the number of
weights cancels out: it depends on the tokens per replica, the compute rate and the link's speed.

With accumulation over k batches, gradients are summed once per k batches. None of this is measured.
"""

import argparse
import os

from processes import numbers

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

LINKS = {
    "8 GPUs, NVLink, 200 GB/s": (8, 200e9),
    "8 GPUs, PCIe 4, 20 GB/s": (8, 20e9),
    "16 hosts of 8, 400 Gbit/s a host": (128, 50e9),
    "16 hosts of 8, 100 Gbit/s a host": (128, 12.5e9),
    "16 hosts of 1, 100 Gbit/s": (16, 12.5e9),
    "16 hosts of 1, 10 Gbit/s": (16, 1.25e9),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", type=float, default=100, help="TFLOP/s of a device (%(default)s)")
    parser.add_argument("--tokens", type=int, default=4096, help="target tokens a replica")
    parser.add_argument(
        "--accumulate", type=numbers, default="1,8", help="batches an update (%(default)s)"
    )
    parser.add_argument("--vocab", type=int, default=33708, help="(%(default)s)")
    args = parser.parse_args()
    counts = args.accumulate
    for name in ("transformer_base", "transformer_big"):
        weights = count_weights(name, args.vocab)
        compute = compute_seconds(weights, args.tokens, args.rate * 1e12)
        print(
            f"\n{name}: {weights / 1e6:.1f} million weights, {4 * weights / 1e6:,.0f} MB of gradients; "
            f"{args.tokens} target tokens at {args.rate:g} TFLOP/s: {1000 * compute:.1f} ms\n"
        )
        titles = [
            f"efficiency, update every {count} batches" if count > 1 else "efficiency"
            for count in counts
        ]
        print(f"| | sent by a device (MB) | reduce (ms) | {' | '.join(titles)} |")
        print("|---|---|---|" + "---|" * len(counts))
        for link, (devices, speed) in LINKS.items():
            sent = sent_bytes(weights, devices)
            reduce = sent / speed
            shares = [compute * count / (compute * count + reduce) for count in counts]
            cells = " | ".join(f"{share:.0%}" for share in shares)
            print(f"| {link} | {sent / 1e6:,.0f} | {1000 * reduce:,.1f} | {cells} |")


def count_weights(name: str, vocab: int) -> int:
    """Counts the trainable weights of an hparams set with one vocabulary for both sides."""
    import t2t_keras as t2t

    model = t2t.Transformer(
        t2t.registry.hparams(name), source_vocab_size=vocab, target_vocab_size=vocab
    )
    return model.count_params()


def compute_seconds(weights: int, tokens: int, rate: float) -> float:
    """Forward and backward of one batch on one device."""
    return 6 * weights * tokens / rate


def sent_bytes(weights: int, devices: int) -> float:
    """Returns the bytes that each device (or host, for a shared link) sends in a ring all-reduce."""
    return 4 * weights * 2 * (devices - 1) / devices


if __name__ == "__main__":
    main()
