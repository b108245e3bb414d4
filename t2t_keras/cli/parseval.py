"""`t2t-keras-parseval`: prints EVALB's scores of predicted parse trees against gold trees.

Example:
    t2t-keras-parseval --gold=test.trees --predicted=parsed.trees
"""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import TYPE_CHECKING

from absl import flags

from t2t_keras.cli import app, options
from t2t_keras.cli.options import string, switch
from t2t_keras.errors import UserError

if TYPE_CHECKING:
    from t2t_keras.metrics import ParsingF1

FLAGS = flags.FLAGS

_STATUS = {"valid": 0, "error": 1, "skipped": 2}
_SHOWN = 10  # errors to print


def define_flags() -> None:
    string("gold", "File of gold trees, plain or .gz.")
    string("predicted", "File of predicted trees, one for each gold tree, plain or .gz.")
    switch("per_sentence", "Also print the scores of each sentence.")
    switch("json", "Print JSON.")


def main(arguments: list[str]) -> None:
    """Prints EVALB's summary; prints errors in trees to standard error."""
    options.reject_arguments(arguments)
    gold, predicted = _trees("gold"), _trees("predicted")
    if len(gold) != len(predicted):
        raise UserError(
            f"{FLAGS.gold} has {len(gold)} trees but {FLAGS.predicted} has {len(predicted)}; "
            "F1 needs the same sentences in both. In a file of one tree per line an empty "
            "line is a tree too."
        )
    from t2t_keras.metrics import parsing_f1

    figures = parsing_f1(gold, predicted)
    _note_roots("gold", gold)
    _note_roots("predicted", predicted)
    _print_errors(figures)
    print(_as_json(figures) if FLAGS.json else _as_text(figures))


def _trees(flag: str) -> list[str]:
    from t2t_keras.metrics.parsing_f1 import trees_of_lines
    from t2t_keras.text import read_lines

    path = options.required(flag)
    trees = trees_of_lines(read_lines(path))
    if not trees:
        raise UserError(f"{path} is empty: --{flag} needs one tree for each sentence.")
    return trees


def _note_roots(flag: str, trees: list[str]) -> None:
    """Notes root labels other than TOP: COLLINS.prm does not delete them, so they raise the scores."""
    from t2t_keras.metrics.parsing_f1 import root_label

    others = [label for label in map(root_label, trees) if label in ("", "ROOT", "S1")]
    if others:
        print(
            f"note: {len(others)} trees of --{flag} have the root {others[0]!r}, which counts as "
            "a bracket; only TOP does not",
            file=sys.stderr,
        )


def _print_errors(figures: ParsingF1) -> None:
    errors = [
        f"{number} : {sentence.reason}"
        for number, sentence in enumerate(figures.by_sentence, start=1)
        if sentence.status == "error"
    ]
    for line in errors[:_SHOWN]:
        print(line, file=sys.stderr)
    if len(errors) > _SHOWN:
        print(f"and {len(errors) - _SHOWN} more errors", file=sys.stderr)


def _as_json(figures: ParsingF1) -> str:
    printed = dataclasses.asdict(figures)
    sentences = printed.pop("by_sentence")
    if FLAGS.per_sentence:
        printed["by_sentence"] = sentences
    return json.dumps(printed, indent=2, ensure_ascii=False)


def _as_text(figures: ParsingF1) -> str:
    lines = []
    if FLAGS.per_sentence:
        lines += [
            "  Sent.                        Matched  Bracket   Cross        Correct Tag",
            " ID  Len.  Stat. Recal  Prec.  Bracket gold test Bracket Words  Tags Accracy",
            "=" * 76,
        ]
        lines += [
            f"{number:4}  {s.length:3}    {_STATUS[s.status]}  {s.recall:6.2f} {s.precision:6.2f}"
            f"   {s.matched:3}    {s.gold:3}  {s.predicted:3}    {s.crossing:3}"
            f"   {s.words:4}  {s.correct_tags:4}   {s.tagging_accuracy:6.2f}"
            for number, s in enumerate(figures.by_sentence, start=1)
        ]
        lines += ["=" * 76, ""]
    return "\n".join([*lines, str(figures)])


def run() -> None:
    define_flags()
    app.start(main, required=["gold", "predicted"])


if __name__ == "__main__":
    run()
