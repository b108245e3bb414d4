"""Plots BLEU against minutes of training: `python curves.py FILE.svg NAME SECONDS SCORES ...`.

For each run give a name, the seconds per step, and a file with a step and its BLEU on each line. Needs
matplotlib (`[plot]`).
"""

import sys

import matplotlib.pyplot as plt


def main():
    path, *runs = sys.argv[1:]
    plt.switch_backend("agg")  # draws to a file, without a display
    plt.rcParams["svg.hashsalt"] = "curves"  # makes the file reproducible
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for name, seconds, scores in zip(runs[::3], runs[1::3], runs[2::3], strict=True):
        with open(scores, encoding="utf-8") as lines:
            points = sorted((int(step), float(bleu)) for step, bleu in map(str.split, lines))
        minutes = [step * float(seconds) / 60 for step, _ in points]
        axes.plot(minutes, [bleu for _, bleu in points], marker="o", markersize=3, label=name)
    axes.set_xlabel("minutes of training on two cores")
    axes.set_ylabel("BLEU on test 2016, greedy")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
