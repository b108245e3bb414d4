"""`t2t-keras-bleu`: prints BLEU as T2T, sacreBLEU and the paper do, or chrF, TER, ROUGE, F1 of trees.

Examples:
    t2t-keras-bleu --translation=test.translated.de --reference=test.de
    t2t-keras-bleu --translation=a.de --translation=b.de --reference=test.de \\
        --metrics=bleu,chrf,ter
    t2t-keras-bleu --translations_dir=translations --reference=test.de
    t2t-keras-bleu --metrics=rouge --translation=mine --reference=highlights
    t2t-keras-bleu --metrics=parsing_f1 --translation=trees --reference=gold

With several translations or references, --metrics or --confidence, it prints only the metrics' scores.
Several translations are compared with the first one.
"""

import dataclasses
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from t2t_keras.cli import app, options
from t2t_keras.cli.options import FLAGS, choice, files, integer, string, strings, switch
from t2t_keras.errors import UserError, explained, require_one_of
from t2t_keras.metrics.bleu import LANGUAGES

Text = tuple[str, Sequence[str]]
"""The path of a file and its lines."""

_RESAMPLES = 1000
_SHOWN = 10  # trees with errors to print
_ALONE = ("rouge", "parsing_f1")  # metrics that are not sacreBLEU's
_STATUS = ("valid", "error", "skipped")  # as EVALB numbers it
_TABLE_HEAD = """\
  Sent.                        Matched  Bracket   Cross        Correct Tag
 ID  Len.  Stat. Recal  Prec.  Bracket gold test Bracket Words  Tags Accracy"""


def define_flags() -> None:
    files("translation", None, "File with one translation per line, plain or .gz")
    files("reference", None, "File with one reference per line, plain or .gz")
    choice("bleu_variant", "both", ["both", "cased", "uncased"], "Which of T2T's scores to print.")
    choice("language", "de", LANGUAGES, "Language for tokenization in the paper's BLEU.")
    metrics = "sacreBLEU's bleu, chrf, chrf++, ter; or by itself rouge or parsing_f1 (trees)."
    strings("metrics", metrics, default=["bleu"])
    switch("per_sentence", "With --metrics=parsing_f1: also print the scores of each sentence.")
    switch("json", "With --metrics=parsing_f1: print JSON.")
    switch("confidence", "95 % confidence intervals from 1000 bootstrap resamples.")
    string("translations_dir", "Directory of files NAME-STEP: print T2T's scores of each, by step.")
    string("event_dir", "With --translations_dir: also write the scores for TensorBoard.")
    string("tag_suffix", "With --event_dir: suffix of the curves' names.", default="")
    integer("min_steps", 0, "With --translations_dir: skip files of fewer steps.")


def main() -> None:
    """Prints T2T's scores like `t2t-bleu`, then sacreBLEU's and the paper's; or what the flags ask for."""
    alone = next((name for name in FLAGS.metrics if name in _ALONE), None)
    directory = options.directory("translations_dir")
    if directory and FLAGS.translation:
        raise UserError("--translation and --translations_dir are both given: leave one out.")
    options.require_for("--translations_dir=DIR", directory, "event_dir", "tag_suffix", "min_steps")
    options.require_for("--metrics=parsing_f1", alone == "parsing_f1", "per_sentence", "json")
    if not FLAGS.metrics:
        raise UserError("--metrics is empty: name one, such as bleu, or leave it out.")
    if alone and (len(FLAGS.metrics) > 1 or FLAGS.confidence):
        raise UserError(f"--metrics={alone} cannot be combined with others or --confidence.")
    several = max(len(FLAGS.translation or ()), len(FLAGS.reference or ())) > 1
    only_metrics = FLAGS["metrics"].present or FLAGS.confidence or several
    if directory:
        if only_metrics:
            raise UserError(
                "--translations_dir prints T2T's scores: give one --reference, and no --metrics or "
                "--confidence."
            )
        options.warn_unused("the paper's BLEU is not printed", "language")
        if not FLAGS.event_dir:
            options.warn_unused("it needs --event_dir", "tag_suffix")
        score_directory(directory, _files("reference"))
        return
    if only_metrics:
        reason = "neither T2T's BLEU nor the paper's is printed"
        options.warn_unused(reason, "bleu_variant", "language")
    if alone == "parsing_f1":
        print_parsing_f1()
        return
    translations, references = _files("translation"), _files("reference")
    for path, lines in translations:
        _require_as_many(path, lines, references)
    if alone == "rouge":
        print_rouge(translations, references)
    elif len(translations) > 1:
        compare(translations, references)
    elif only_metrics:
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
    both = {"uncased": figures.t2t_uncased, "cased": figures.t2t_cased}
    printed = both if FLAGS.bleu_variant == "both" else [FLAGS.bleu_variant]
    return {f"BLEU_{name}": both[name] for name in printed}


def print_scores(hypotheses: Sequence[str], references: list[Text]) -> None:
    """Prints sacreBLEU's scores in its own format, with confidence intervals if requested."""
    resamples = _RESAMPLES if FLAGS.confidence else 1
    for metric in _metrics():
        score = metric.corpus_score(hypotheses, [lines for _, lines in references], resamples)
        print(score.format(signature=str(metric.get_signature())))


def print_rouge(translations: list[Text], references: list[Text]) -> None:
    """Prints ROUGE of each translation; with several references, the best of each line counts."""
    from t2t_keras.metrics import rouge

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


def print_parsing_f1() -> None:
    """Prints EVALB's scores of trees; notes errors in them and unusual roots on standard error."""
    from t2t_keras.metrics import parsing_f1
    from t2t_keras.metrics.parsing_f1 import root_label

    gold_path, gold = _trees("reference")
    path, predicted = _trees("translation")
    if len(gold) != len(predicted):
        raise UserError(
            f"{gold_path} has {len(gold)} trees but {path} has {len(predicted)}; F1 needs the same "
            "sentences in both. In a file of one tree per line an empty line is a tree too."
        )
    figures = parsing_f1(gold, predicted)
    say = partial(print, file=sys.stderr)
    # COLLINS.prm deletes no root but TOP, so others raise the scores.
    for flag, trees in (("reference", gold), ("translation", predicted)):
        if others := [label for label in map(root_label, trees) if label in ("", "ROOT", "S1")]:
            root = f"the root {others[0]!r}, which counts as a bracket; only TOP does not"
            say(f"note: {len(others)} trees of --{flag} have {root}")
    sentences = list(enumerate(figures.by_sentence, start=1))
    errors = [f"{number} : {each.reason}" for number, each in sentences if each.status == "error"]
    if errors:
        say(*errors[:_SHOWN], sep="\n")
    if len(errors) > _SHOWN:
        say(f"and {len(errors) - _SHOWN} more errors")
    if FLAGS.json:
        printed = dataclasses.asdict(figures)
        if not FLAGS.per_sentence:
            del printed["by_sentence"]
        print(json.dumps(printed, indent=2, ensure_ascii=False))
        return
    if FLAGS.per_sentence:
        rule = "=" * 76
        print(_TABLE_HEAD, rule, sep="\n")
        for number, s in sentences:
            print(
                f"{number:4}  {s.length:3}    {_STATUS.index(s.status)}  {s.recall:6.2f} "
                f"{s.precision:6.2f}   {s.matched:3}    {s.gold:3}  {s.predicted:3}    {s.crossing:3}"
                f"   {s.words:4}  {s.correct_tags:4}   {s.tagging_accuracy:6.2f}"
            )
        print(rule, end="\n\n")
    print(figures)


def _trees(flag: str) -> tuple[str, list[str]]:
    from t2t_keras.metrics.parsing_f1 import trees_of_lines

    [(path, lines), *more] = _files(flag, "one tree for each sentence")
    if more:
        raise UserError(f"--metrics=parsing_f1 takes one --{flag}.")
    return path, trees_of_lines(lines)


def score_directory(directory: str, references: list[Text]) -> None:
    """Prints BLEU of each file NAME-STEP or NAME-STEP.SUFFIX, by step, and writes it for TensorBoard."""
    from t2t_keras.metrics import bleu
    from t2t_keras.text import read_lines

    with explained(f"{directory} cannot be read", OSError):
        names = os.listdir(directory)
    matches = [re.fullmatch(r".*-(\d+)(\.(?!unfinished)[a-z]+)?", name) for name in names]
    found = sorted((int(m[1]), os.path.join(directory, m[0])) for m in matches if m)
    found = [each for each in found if each[0] >= FLAGS.min_steps and os.path.isfile(each[1])]
    if not found:
        raise UserError(f"{directory} has no files NAME-STEP of step {FLAGS.min_steps} or later.")
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


def _metrics() -> Iterator:
    from sacrebleu.metrics import BLEU, CHRF, TER

    word_pairs = partial(CHRF, word_order=2)
    make: dict[str, Callable] = {"bleu": BLEU, "chrf": CHRF, "chrf++": word_pairs, "ter": TER}
    for name in FLAGS.metrics:
        require_one_of("each of --metrics", name, [*make, *_ALONE])
        yield make[name]()


def _files(flag: str, needed: str = "one sentence per line") -> list[Text]:
    """Returns path and lines of each file that a flag names."""
    from t2t_keras.text import read_lines

    if not FLAGS[flag].value:
        options.required(flag)
    paths = map(os.path.expanduser, FLAGS[flag].value or [])
    found: list[Text] = [(path, read_lines(path)) for path in paths]
    for path, lines in found:
        if not lines:
            raise UserError(f"{path} is empty: --{flag} needs {needed}.")
    return found


def _require_as_many(path: str, lines: Sequence[str], references: list[Text]) -> None:
    for reference, wanted in references:
        if len(lines) != len(wanted):
            raise UserError(
                f"{path} has {len(lines)} lines but {reference} has {len(wanted)}; BLEU needs the "
                "same sentences in both, one per line."
            )


run = app.command(define_flags, main, required=["translation", "reference"])

if __name__ == "__main__":
    run()
