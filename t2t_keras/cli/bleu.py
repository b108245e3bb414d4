"""`t2t-keras-bleu`: prints the BLEU of a translation as T2T, sacreBLEU and the paper compute it."""

from __future__ import annotations

from absl import flags

from t2t_keras.cli import app, options
from t2t_keras.errors import UserError
from t2t_keras.metrics.bleu import LANGUAGES

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the flags of the command."""
    flags.DEFINE_string("translation", "", "File with one translation per line, plain or .gz.")
    flags.DEFINE_string("reference", "", "File with the reference of each line, plain or .gz.")
    flags.DEFINE_enum(
        "bleu_variant", "both", ["both", "cased", "uncased"], "T2T's figures to print."
    )
    flags.DEFINE_enum(
        "language", "de", LANGUAGES, "Language of the tokenization of the paper's BLEU."
    )


def main(arguments: list[str]) -> None:
    """Prints T2T's figures as `t2t-bleu` does, then sacreBLEU's and the paper's form."""
    options.reject_arguments(arguments)
    hypotheses, references = _sentences("translation"), _sentences("reference")
    if len(hypotheses) != len(references):
        raise UserError(
            f"{FLAGS.translation} has {len(hypotheses)} lines but {FLAGS.reference} has "
            f"{len(references)}; BLEU needs the same sentences in both, one per line."
        )
    from t2t_keras.metrics import bleu

    figures = bleu(references, hypotheses, FLAGS.language)
    if FLAGS.bleu_variant != "cased":
        print(f"BLEU_uncased = {figures.t2t_uncased:6.2f}")
    if FLAGS.bleu_variant != "uncased":
        print(f"BLEU_cased = {figures.t2t_cased:6.2f}")
    print(f"sacreBLEU = {figures.sacrebleu:6.2f} ({figures.signature})")
    rules = {"de": "tokenised, compounds split", "fr": "tokenised as French"}[FLAGS.language]
    print(f"BLEU_paper_style = {figures.paper_style:6.2f} ({rules})")


def _sentences(flag: str) -> list[str]:
    from t2t_keras.text import read_lines

    path = options.required(flag)
    lines = read_lines(path)
    if not lines:
        raise UserError(f"{path} is empty: --{flag} needs one sentence per line.")
    return lines


def run() -> None:
    """The console script."""
    define_flags()
    app.start(main)


if __name__ == "__main__":
    run()
