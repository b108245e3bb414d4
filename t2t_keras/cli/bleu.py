"""`t2t-keras-bleu`: prints BLEU as T2T, sacreBLEU and the paper compute it, or chrF, TER and ROUGE.

Examples:
    t2t-keras-bleu --translation=test.translated.de --reference=test.de
    t2t-keras-bleu --translation=base.de --translation=mine.de --reference=test.de \\
        --metrics=bleu,chrf,ter
    t2t-keras-bleu --translations_dir=translations --reference=test.de
    t2t-keras-bleu --translation=test.summaries --reference=test.highlights --metrics=rouge

With several translations or references, --metrics or --confidence, it prints only sacreBLEU's scores.
Several translations are compared with the first one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from absl import flags

from t2t_keras.cli import app, options
from t2t_keras.cli.options import choice, integer, string, strings, switch
from t2t_keras.errors import UserError, nearest
from t2t_keras.metrics.bleu import LANGUAGES

FLAGS = flags.FLAGS

Text = tuple[str, Sequence[str]]
"""The path of a file and its lines."""

_RESAMPLES = 1000


def define_flags() -> None:
    """Defines the flags of the command: T2T's, as far as they apply, and others."""
    flags.DEFINE_multi_string(
        "translation", None, "File with one translation per line, plain or .gz."
    )
    flags.DEFINE_multi_string("reference", None, "File with one reference per line, plain or .gz.")
    choice("bleu_variant", "both", ["both", "cased", "uncased"], "Which of T2T's scores to print.")
    choice("language", "de", LANGUAGES, "Language for tokenization in the paper's BLEU.")
    metrics = "sacreBLEU metrics: bleu, chrf, chrf++, ter; or rouge (by itself) for summaries."
    strings("metrics", metrics, default=["bleu"])
    switch("confidence", "95 % confidence intervals from 1000 bootstrap resamples.")
    string("translations_dir", "Directory of files NAME-STEP: print T2T's scores of each, by step.")
    string("event_dir", "With --translations_dir: also write the scores for TensorBoard.")
    string("tag_suffix", "With --event_dir: suffix of the curves' names.", default="")
    integer("min_steps", 0, "With --translations_dir: skip files of fewer steps.")


def main(arguments: list[str]) -> None:
    """Prints T2T's scores like `t2t-bleu`, then sacreBLEU's and the paper's; or what the flags ask for."""
    options.reject_arguments(arguments)
    given = options.given("event_dir", "tag_suffix", "min_steps")
    if FLAGS.translations_dir and FLAGS.translation:
        raise UserError("--translation and --translations_dir are both given: leave one out.")
    if given and not FLAGS.translations_dir:
        raise UserError(f"{given[0]} is for --translations_dir=DIRECTORY, which is missing.")
    directory = options.directory("translations_dir")
    translations = [] if directory else _files("translation")
    references = _files("reference")
    several = len(translations) > 1 or len(references) > 1
    only_sacrebleu = FLAGS["metrics"].present or FLAGS.confidence or several
    if directory and only_sacrebleu:
        raise UserError(
            "--translations_dir prints T2T's scores: give one --reference, and no --metrics or "
            "--confidence."
        )
    for path, lines in translations:
        _require_as_many(path, lines, references)
    if only_sacrebleu:
        reason = "neither T2T's BLEU nor the paper's is printed"
        options.warn_unused(reason, "bleu_variant", "language")
    if directory:
        options.warn_unused("the paper's BLEU is not printed", "language")
        score_directory(directory, references)
    elif "rouge" in FLAGS.metrics:
        print_rouge(translations, references)
    elif len(translations) > 1:
        compare(translations, references)
    elif only_sacrebleu:
        print_scores(translations[0][1], references)
    else:
        print_bleu(translations[0][1], references[0][1])


def print_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """Prints BLEU in four variants."""
    from t2t_keras.metrics import bleu

    figures = bleu(references, hypotheses, FLAGS.language)
    print(*(f"{name} = {value:6.2f}" for name, value in _t2t_scores(figures).items()), sep="\n")
    print(f"sacreBLEU = {figures.sacrebleu:6.2f} ({figures.signature})")
    rules = {"de": "tokenised, compounds split", "fr": "tokenised as French"}[FLAGS.language]
    print(f"BLEU_paper_style = {figures.paper_style:6.2f} ({rules})")


def _t2t_scores(figures) -> dict[str, float]:
    both = {"BLEU_uncased": figures.t2t_uncased, "BLEU_cased": figures.t2t_cased}
    return {
        name: value
        for name, value in both.items()
        if FLAGS.bleu_variant in ("both", name.removeprefix("BLEU_"))
    }


def print_scores(hypotheses: Sequence[str], references: list[Text]) -> None:
    """Prints sacreBLEU's scores in its own format, with confidence intervals if requested."""
    resamples = _RESAMPLES if FLAGS.confidence else 1
    for metric in _metrics():
        score = metric.corpus_score(hypotheses, [lines for _, lines in references], resamples)
        print(score.format(signature=str(metric.get_signature())))


def print_rouge(translations: list[Text], references: list[Text]) -> None:
    """Prints ROUGE of each translation; with several references, the best of each line counts."""
    from t2t_keras.metrics import rouge

    if len(FLAGS.metrics) > 1 or FLAGS.confidence:
        raise UserError(
            "--metrics=rouge cannot be combined: give no other metric and no --confidence."
        )
    several = list(zip(*(lines for _, lines in references), strict=True))
    for path, lines in translations:
        if len(translations) > 1:
            print(path)
        for name, figure in rouge(several, lines).items():
            print(f"{name} = {figure:6.2f}")


def compare(translations: list[Text], references: list[Text]) -> None:
    """Prints sacreBLEU's scores of several translations, with a paired bootstrap test against the first."""
    from sacrebleu.significance import PairedTest

    metrics = {str(number): metric for number, metric in enumerate(_metrics())}
    test = PairedTest(translations, metrics, [lines for _, lines in references], "bs", _RESAMPLES)
    signatures, scores = test()
    for number, (path, _) in enumerate(translations):
        print(path)
        for name in signatures:
            found: Any = scores[name][number]
            p_value = f"  p = {found.p_value:.4f}" if found.p_value is not None else ""
            print(f"  {name} = {found.score:6.2f} ± {found.ci:.2f}{p_value}")
    print(f"p: of the difference from {translations[0][0]}, by paired bootstrap")
    for name, signature in signatures.items():
        print(f"{name}: {signature}")


def score_directory(directory: str, references: list[Text]) -> None:
    """Prints BLEU of each file in a directory, and writes it for TensorBoard if requested."""
    from t2t_keras.metrics import bleu
    from t2t_keras.text import read_lines

    found = [each for each in steps_in(directory) if each[0] >= FLAGS.min_steps]
    if not found:
        raise UserError(f"{directory} has no files NAME-STEP, such as newstest.de-1000.")
    log = None
    if FLAGS.event_dir:
        options.import_tensorflow()
        from t2t_keras.training.reporting import EventLog

        # TensorFlow also writes to gs://.
        log = EventLog(os.path.expanduser(FLAGS.event_dir))
    for step, path in found:
        lines = read_lines(path)
        _require_as_many(path, lines, references)
        figures = bleu(references[0][1], lines, FLAGS.language)
        values = {**_t2t_scores(figures), "sacreBLEU": figures.sacrebleu}
        words = "  ".join(f"{name} = {value:6.2f}" for name, value in values.items())
        print(f"{path}: {words}", flush=True)
        if log:
            log.write(step, {name + FLAGS.tag_suffix: value for name, value in values.items()})
            log.flush()


def steps_in(directory: str) -> list[tuple[int, str]]:
    """Returns step and path of each file NAME-STEP or NAME-STEP.SUFFIX, sorted by step."""
    try:
        names = os.listdir(directory)
    except OSError as error:
        raise UserError(f"{directory} cannot be read: {error.strerror}.") from error
    matches = [re.fullmatch(r".*-(\d+)(\.[a-z]+)?", name) for name in names]
    return sorted((int(m[1]), os.path.join(directory, m[0])) for m in matches if m)


def _metrics() -> Iterator:
    from sacrebleu.metrics import BLEU, CHRF, TER

    make: dict[str, Callable] = {
        "bleu": BLEU,
        "chrf": CHRF,
        "chrf++": lambda: CHRF(word_order=2),
        "ter": TER,
    }
    for name in FLAGS.metrics:
        if name not in make:
            raise UserError(
                f"unknown metric {name!r} in --metrics; allowed: {', '.join(make)}, rouge."
                f"{nearest(name, [*make, 'rouge'])}"
            )
        yield make[name]()


def _files(flag: str) -> list[Text]:
    """Returns path and lines of each file that a flag names."""
    from t2t_keras.text import read_lines

    if not FLAGS[flag].value:
        options.required(flag)
    files: list[Text] = [
        (path, read_lines(path)) for path in map(os.path.expanduser, FLAGS[flag].value or [])
    ]
    for path, lines in files:
        if not lines:
            raise UserError(f"{path} is empty: --{flag} needs one sentence per line.")
    return files


def _require_as_many(path: str, lines: Sequence[str], references: list[Text]) -> None:
    for reference, wanted in references:
        if len(lines) != len(wanted):
            raise UserError(
                f"{path} has {len(lines)} lines but {reference} has {len(wanted)}; BLEU needs the "
                "same sentences in both, one per line."
            )


def run() -> None:
    define_flags()
    app.start(main, required=["translation", "reference"])


if __name__ == "__main__":
    run()
