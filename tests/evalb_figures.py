"""Figures that EVALB with its parameters COLLINS.prm printed for the trees of `tests/data/evalb`."""

import json
from pathlib import Path

FOLDER = Path(__file__).parent / "data" / "evalb"
SENTENCES = json.loads((FOLDER / "sentences.json").read_text())
"""Gold tree and predicted tree, by what is in question."""

TABLE, SUMMARY = (FOLDER / "printed.txt").read_text().split("-- All --\n")
"""As EVALB prints it, but zeros where status is 1: EVALB counts on there for nothing."""
SUMMARY = f"-- All --\n{SUMMARY}"

ROWS = [row.split() for row in TABLE.splitlines()[3:-1]]
FIGURES = [tuple(int(row[column]) for column in (1, 2, 5, 6, 7, 8, 9, 10)) for row in ROWS]
"""Of each: length, status (1 is an error, 2 skipped), brackets that match, that are gold, that are
predicted, that cross, words, right tags."""

GUM_FIGURES = json.loads((FOLDER / "gum.json").read_text())
"""The summary of the dev trees of GUM as `damaged` makes them at a rate, with seed 1."""
