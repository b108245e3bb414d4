"""`t2t-keras-decode`: translates a file or typed lines, or scores or aligns sentence pairs.

Examples:
    t2t-keras-decode --output_dir=run --decode_from_file=test.en
    t2t-keras-decode --checkpoint_path=averaged/model.ckpt --decode_interactive

Give --output_dir or --checkpoint_path, and one of --decode_from_file, --decode_interactive,
--score_file and --align_file. A checkpoint of tensor2tensor may need --problem, --data_dir and --hparams_set.
"""

import contextlib
import functools
import os
import signal
import sys

from t2t_keras import registry
from t2t_keras.cli import app, options
from t2t_keras.cli.options import FLAGS, string, switch
from t2t_keras.errors import UserError

_STANDARD = "-"  # standard input or output
_RESULTS = {"decode_from_file": "translations", "score_file": "scores", "align_file": "alignments"}


def define_flags() -> None:
    options.define(*options.TRAINED_MODEL)
    options.define_search()
    options.define_precision()
    with options.topic("Texts:"):
        string("decode_from_file", "Text to translate, one sentence per line; -: standard input.")
        string("decode_to_file", "Output file; default: a name by T2T's rule; -: standard output.")
        string("decode_prefix_file", "Whole words that each translation begins with, line by line.")
        string("constraints_file", "Phrases that a line's translation must contain, tab-separated.")
        switch("raw", "Write the model's output unchanged: in parsing, tags instead of trees.")
        switch("decode_interactive", "Translate lines as they are typed; q quits.")
    with options.topic("Scores and alignments:"):
        switch("token_scores", "Write a tab and the scores of its tokens after each output.")
        string("score_file", "Pairs to score, one SOURCE<tab>TARGET per line; -: standard input.")
        string("align_file", "Pairs to word-align, SOURCE<tab>TARGET a line; -: standard input.")
        string(
            "align_heads", "For --align_file: LAYER:HEAD, LAYER or mean; +1: a step later.", "mean"
        )
        string("align_reference", "For --align_file: gold links; prints each head's error rate.")


def main() -> None:
    options.require_trained_model()
    modes = [name for name in _MODES if FLAGS[name].value]
    if len(modes) != 1:
        raise UserError(
            "give one of --decode_from_file=FILE, --decode_interactive, --score_file=FILE and "
            "--align_file=FILE."
        )
    [mode] = modes
    searches = mode in ("decode_from_file", "decode_interactive")
    if FLAGS.decode_interactive and FLAGS.decode_to_file:
        raise UserError("--decode_interactive prints translations: leave out --decode_to_file.")
    for name in ("decode_prefix_file", "constraints_file", "raw"):
        if FLAGS[name].value and mode != "decode_from_file":
            raise UserError(f"--{name} needs --decode_from_file.")
    if FLAGS.token_scores and mode == "align_file":
        raise UserError("--align_file has no token scores: leave out --token_scores.")
    inputs = (FLAGS.decode_from_file, FLAGS.decode_prefix_file, FLAGS.constraints_file)
    if inputs.count(_STANDARD) > 1:
        raise UserError("only one input can be standard input: name files for the others.")
    has_output = FLAGS.decode_to_file or (mode == "align_file" and FLAGS.align_reference)
    if not searches and FLAGS[mode].value != _STANDARD and not has_output:
        raise UserError(f"--decode_to_file is missing: the {_RESULTS[mode]} of --{mode} go there.")
    if mode != "align_file":
        options.warn_unused("there is no --align_file", "align_heads", "align_reference")
    for name in (*_RESULTS, "decode_prefix_file", "constraints_file"):
        _require_input(name)

    settings = options.decode_settings()
    if FLAGS.constraints_file and (settings.beam_size == 1 or settings.xla):
        raise UserError("--constraints_file needs a beam_size of 2 or more, and no xla.")
    names = () if searches else options.SEARCH_SETTINGS
    if changed := [n for n in names if getattr(settings, n) != getattr(type(settings), n)]:
        print(f"ignoring {', '.join(changed)}: --{mode} does not search", file=sys.stderr)
    options.import_tensorflow()
    _MODES[mode](settings)


def _require_input(name: str) -> None:
    """Rejects an input that is not a file or is the output, before anything heavy is loaded."""
    source, target = options.directory(name), options.directory("decode_to_file")
    if target and target.endswith(".gz"):
        raise UserError(f"--decode_to_file={target} would not be compressed: leave out .gz.")
    if not source or source == _STANDARD:
        return
    if os.path.isdir(source) or not os.path.exists(source):
        from t2t_keras.text import iterate_lines

        next(iterate_lines(source), None)
    if not target or target == _STANDARD or not os.path.isfile(target):
        return
    if os.path.isfile(source) and os.path.samefile(source, target):
        raise UserError(f"--decode_to_file={target} would replace --{name}: name another file.")


def translate_file(settings) -> None:
    job = Job("decode_from_file", settings)
    loaded = job.loaded
    translator = loaded.translator(settings, job.progress.warn)
    if loaded.problem.num_classes:
        options.warn_unused("a class is one label", "raw", "token_scores", "xla")
    if FLAGS.raw:
        translator.format_output = lambda inputs, output: output

    default = (
        f"{job.source.path}.{registry.model_name(loaded.model.members[0])}"
        f".{loaded.set_name}.{loaded.problem.name}"
        f".beam{settings.beam_size}.alpha{settings.alpha}.decodes"
    )
    as_text = functools.partial(format_translation, settings=settings)
    job.run(translator.translate_lines, as_text, translator.batcher, default)


def align_file(settings) -> None:
    """Aligns the words of the pairs in --align_file, or prints each head's error rate."""
    from t2t_keras.inspection.alignment import Heads, PairAligner, from_pharaoh, to_pharaoh

    heads = FLAGS.align_heads
    Heads.parse(heads)  # reports a mistake before the checkpoint is read
    job = Job("align_file", settings)
    aligner = PairAligner(job.loaded.model, job.loaded.encoders, heads, settings, job.progress.warn)
    if not FLAGS.align_reference:
        job.check(aligner.texts)
        job.run(aligner.score_lines, to_pharaoh, aligner.batcher)
        return
    from t2t_keras.text import read_lines

    options.warn_unused("the error rates of all heads are printed", "decode_to_file", "align_heads")
    path = options.required("align_reference")
    gold = [from_pharaoh(s, f"{path}, line {n}") for n, s in enumerate(read_lines(path), start=1)]
    rates = aligner.error_rates(job.source, gold)
    for found, rate in sorted(rates.items(), key=lambda item: item[1]):
        print(f"{found!s:8} {100 * rate:6.2f}")


def score_file(settings) -> None:
    from t2t_keras.decoding import PairScorer

    def as_text(score) -> str:
        return "\t".join([f"{score.loss:.6f}", *format_token_scores([score.token_scores])])

    job = Job("score_file", settings)
    if job.loaded.problem.num_classes:
        raise UserError(
            "--score_file is for pairs of texts: for the probabilities of classes, use --decode_from_file "
            "with --decode_hparams=write_beam_scores=true,return_beams=true."
        )
    scorer = PairScorer(job.loaded.model, job.loaded.encoders, settings, job.progress.warn)
    job.check(scorer.texts)
    job.run(scorer.score_lines, as_text, scorer.batcher)


def translate_interactively(settings) -> None:
    """Translates each line of standard input until its end or a line q."""
    translator = options.trained_model().translator(settings)
    for typed in options.typed_lines():
        line = options.valid_text(typed, "the line")
        if line.strip() == "q":
            return
        try:
            [translation] = translator.translate([line])
        except UserError as error:  # the vocabulary cannot encode the line
            print(error, file=sys.stderr)
        else:
            print(format_translation(translation, settings), flush=True)


_MODES = {
    "decode_from_file": translate_file,
    "decode_interactive": translate_interactively,
    "score_file": score_file,
    "align_file": align_file,
}


class Job:
    """Writes one line of output, by the model of the flags, for each line of the source that a flag names."""

    def __init__(self, flag: str, settings):
        from t2t_keras.decoding.text_files import LineProgress, SourceLines

        self.flag, self.settings = flag, settings
        self.progress = LineProgress()
        self.source = SourceLines(options.required(flag), self.progress.warn)
        self.prefixes, self.phrases = (
            SourceLines(path, self.progress.warn) if path else None
            for path in map(options.directory, ("decode_prefix_file", "constraints_file"))
        )
        if self.source.is_file:
            content = self.source.content
            if not content.lines:
                raise UserError(f"{self.source.path} is empty: --{flag} needs a sentence per line.")
            for text in filter(None, (self.prefixes, self.phrases)):
                if text.is_file and text.content.lines != content.lines:
                    raise UserError(
                        f"{text.path} has {text.content.lines:,} lines, but {self.source.path} "
                        f"{content.lines:,}: each sentence needs a line there, empty if it has none."
                    )
            self.progress.expect(content.lines, content.text_bytes)
        self.loaded = options.trained_model()

    def check(self, parse) -> None:
        """Parses all lines of a file, so that a bad one is found before hours of work."""
        from t2t_keras.text.lines import iterate_raw_lines

        if self.source.is_file:
            for number, line in enumerate(iterate_raw_lines(self.source.path), start=1):
                parse(line.decode("utf-8", "ignore"), number)

    def run(self, results, as_text, batcher, default: str = _STANDARD) -> None:
        """Writes the results that are not in the output yet, until the end or a signal."""
        from t2t_keras.decoding.text_files import ResumableFile, line_output, write_results
        from t2t_keras.progress import StopRequests

        path = options.directory("decode_to_file")
        path = path or (default if self.source.is_file else _STANDARD)
        made_from = self._made_from()
        output = line_output(path, made_from, self.progress.say)
        to_file = isinstance(output, ResumableFile)
        # Nothing could end the wait for the next line of a pipe or terminal after a recorded signal.
        stop = StopRequests()
        with stop if self.source.is_file else contextlib.nullcontext():
            complete = write_results(
                *(results, as_text, batcher.first_of_window),
                *(self.source, self.prefixes, self.phrases),
                *(output, self.progress, lambda: bool(stop.name)),
            )
        if not complete:
            later = "; rerun the command to resume" if to_file and made_from else ""
            self.progress.say(f"stopped by {stop.name} after line {output.lines:,}{later}")
            sys.exit(128 + signal.Signals[stop.name])  # the shell's code
        if report := self.loaded.problem.format_report():
            self.progress.say(report)
        if to_file:
            print(f"{output.lines} {_RESULTS[self.flag]} in {path}")

    def _made_from(self):
        """Returns everything that the output depends on; None if the input cannot be read again."""
        texts = {"source": self.source, "prefixes": self.prefixes, "phrases": self.phrases}
        given = {name: text for name, text in texts.items() if text}
        if not all(text.is_file for text in given.values()):
            return None
        contents = {"flag": self.flag} | {name: str(text.content) for name, text in given.items()}
        contents |= {name: "true" for name in ("raw", "token_scores") if FLAGS[name].value}
        if self.flag == "align_file":
            contents["heads"] = FLAGS.align_heads
        return contents | self.loaded.made_from() | self.settings.deciding()


def format_translation(translation, settings) -> str:
    """Returns a line of output in T2T's format: the text, or all beams, with scores if requested."""
    texts = [text.replace("\n", " ") for text in translation.texts]
    if settings.return_beams or settings.write_beam_scores or FLAGS.token_scores:
        texts = [text.replace("\t", " ") for text in texts]  # tabs separate fields
    scores = [f"{score:.2f}" for score in translation.scores if settings.write_beam_scores]
    fields = (texts, scores, format_token_scores(translation.token_scores))
    return "\t".join(map("\t".join, zip(*filter(None, fields), strict=True)))


def format_token_scores(rows) -> list[str]:
    """Returns the scores of each output's tokens in a line; nothing without --token_scores."""
    return [" ".join(f"{x:.4f}" for x in row) for row in rows if FLAGS.token_scores]


run = app.command(define_flags, main)

if __name__ == "__main__":
    run()
