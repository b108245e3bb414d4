"""`t2t-keras-decode`: translates a file, or line by line as they are typed."""

from __future__ import annotations

import os
import sys

from absl import flags

from t2t_keras.cli import app, options
from t2t_keras.errors import UserError

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the flags of the command: T2T's, as far as they apply."""
    options.define_problem()
    options.define_hparams()
    options.define_decode_hparams()
    flags.DEFINE_string("output_dir", None, "Directory of a run; its latest checkpoint is used.")
    flags.DEFINE_string(
        "checkpoint_path", None, "A certain checkpoint, such as DIR/model.ckpt-100."
    )
    flags.DEFINE_string("decode_from_file", "", "Text to translate, a sentence a line.")
    flags.DEFINE_string("decode_to_file", "", "Where the translations go; named by T2T's rule.")
    flags.DEFINE_bool("decode_interactive", False, "Translate what is typed; q quits.")


def main(arguments: list[str]) -> None:
    """Loads the checkpoint, then translates the file or what is typed."""
    options.reject_arguments(arguments)
    data_dir = options.required("data_dir")
    path = options.directory("checkpoint_path") or options.required("output_dir")
    if bool(FLAGS.decode_from_file) == FLAGS.decode_interactive:
        raise UserError("give either --decode_from_file=FILE or --decode_interactive.")
    source = options.directory("decode_from_file")
    lines = read_source(source) if source else []

    from t2t_keras import checkpoints
    from t2t_keras.decoding import DecodeSettings, Translator

    settings = DecodeSettings.parse(FLAGS.decode_hparams)
    given = options.hparams(needed=False)
    recorded, run = checkpoints.read_settings(os.path.dirname(checkpoints.resolve(path)))
    problem = options.problem(run.get("problem"))
    encoders = problem.get_feature_encoders(data_dir)
    model = checkpoints.load_model(path, given, run.get("target_space_id", problem.target_space_id))
    require_vocabulary(model, encoders, data_dir)
    translator = Translator(model, encoders, settings)
    if source:
        set_name = (recorded or given).set_name or "hparams"
        target = options.directory("decode_to_file") or (
            f"{source}.transformer.{set_name}.{problem.name}"
            f".beam{settings.beam_size}.alpha{settings.alpha}.decodes"
        )
        translate_file(translator, lines, target)
    else:
        translate_interactively(translator)


def read_source(path: str) -> list[str]:
    """The lines to translate."""
    from t2t_keras.text import read_lines

    lines = read_lines(path)
    if not lines:
        raise UserError(f"{path} is empty: --decode_from_file needs one sentence a line.")
    return lines


def require_vocabulary(model, encoders, data_dir: str) -> None:
    """Refuses a vocabulary of another size than the model's."""
    sizes = (("inputs", model.source_vocab_size), ("targets", model.target_vocab_size))
    for side, size in sizes:
        if encoders[side].vocab_size != size:
            raise UserError(
                f"the vocabulary of the {side} in {data_dir} has {encoders[side].vocab_size} "
                f"tokens and the checkpoint {size}: give the data the model was trained on."
            )


def translate_file(translator, lines: list[str], target: str) -> None:
    """Translates lines into a file, which appears under its name when complete."""
    unfinished = target + ".unfinished"
    try:
        with open(unfinished, "w", encoding="utf-8", errors="replace") as file:
            for translation in translator.translate(lines, done=lambda n: show(n, len(lines))):
                file.write(format_translation(translation, translator.settings) + "\n")
        os.replace(unfinished, target)
    except OSError as error:
        raise UserError(f"{target} cannot be written: {error.strerror}.") from error
    print(f"{len(lines)} translations in {target}")


def show(done: int, total: int) -> None:
    """Tells how far it is: one line, rewritten on a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{done}/{total} sentences" + ("\n" if done == total else ""))
        sys.stderr.flush()


def format_translation(translation, settings) -> str:
    """One output line: the text, or all beams, with scores where asked, as T2T writes them."""
    texts = [text.replace("\n", " ") for text in translation.texts]
    if settings.return_beams or settings.write_beam_scores:  # tabs separate fields
        texts = [text.replace("\t", " ") for text in texts]
    if settings.write_beam_scores:
        texts = [
            f"{text}\t{score:.2f}" for text, score in zip(texts, translation.scores, strict=True)
        ]
    return "\t".join(texts)


def translate_interactively(translator) -> None:
    """Translates each line of standard input until it ends or says q."""
    prompt = "> " if sys.stdin.isatty() else ""
    while True:
        try:
            line = input(prompt)
        except EOFError:
            return
        except UnicodeDecodeError:
            print("that line is not UTF-8", file=sys.stderr)
            continue
        if line.strip() == "q":
            return
        if line.strip():
            [translation] = translator.translate([line])
            print(format_translation(translation, translator.settings), flush=True)


def run() -> None:
    """The console script."""
    define_flags()
    app.start(main)


if __name__ == "__main__":
    run()
