"""`t2t-keras-inspect attention`: what each head attends to in a text and its translation."""

from __future__ import annotations

import os

from absl import flags

from t2t_keras.cli import options, trained_model
from t2t_keras.errors import UserError

FLAGS = flags.FLAGS

_PAGE = "attention.html"
_WRITTEN = {"html": "page", "npz": "weights", "plot": "figure"}
_OF_PLOT = ("attention", "layer", "heads", "words", "subwords")


def define_flags() -> None:
    """Defines the flags of this subject alone."""
    flags.DEFINE_string("text", None, "attention: the source.")
    flags.DEFINE_string("target_text", None, "attention: the translation; else what is found.")
    flags.DEFINE_string("npz", None, "attention: also write the weights, for numpy.")
    flags.DEFINE_enum(
        "attention", "encdec", ["encoder", "decoder", "encdec"], "attention: which, of --plot."
    )
    flags.DEFINE_integer("layer", None, "attention: of --plot, from 0; the last.", lower_bound=0)
    flags.DEFINE_list("heads", [], "attention: of --plot, from 0; all.")
    flags.DEFINE_list("words", [], "attention: of --plot, the words that attend; all.")
    flags.DEFINE_bool("subwords", False, "attention: of --plot, subwords instead of whole words.")


def main(arguments: list[str]) -> None:
    """Writes the page, and what else is asked for."""
    options.reject_arguments(arguments)
    data_dir = trained_model.require_flags()
    if not FLAGS.text:
        raise UserError('--text is missing: give --text="A sentence of the source."')
    if FLAGS.target_text is not None and FLAGS.decode_hparams:
        raise UserError("--decode_hparams say how to translate, but --target_text is given.")
    given = [f"--{name}" for name in _OF_PLOT if FLAGS[name].present]
    if given and not FLAGS.plot:
        raise UserError(f"{given[0]} is for --plot=FILE, which is missing.")
    heads = _heads()
    paths = {name: options.file_to_write(name) for name in ("html", "npz", "plot")}
    if not any(paths.values()):
        paths["html"] = _PAGE
    if paths["plot"]:
        from t2t_keras.inspection.figures import require_figure

        require_figure(paths["plot"])

    from t2t_keras.decoding import DecodeSettings
    from t2t_keras.inspection.attention import attention_data
    from t2t_keras.inspection.attention_page import attention_page

    settings = DecodeSettings.parse(FLAGS.decode_hparams)
    loaded = trained_model.TrainedModel(data_dir)
    data = attention_data(
        loaded.model,
        loaded.encoders,
        FLAGS.text,
        FLAGS.target_text,
        problem=loaded.problem,
        settings=settings,
        title=f"{loaded.problem.name}, {os.path.basename(loaded.prefixes[0])}",
    )
    _tell(data)
    if paths["html"]:
        options.write_page("html", paths["html"], attention_page(data.to_json()))
    if paths["npz"]:
        data.save(paths["npz"])
    if paths["plot"]:
        _draw(data, paths["plot"], heads)
    for name, path in paths.items():
        if path:
            print(f"{_WRITTEN[name]}: {path}")


def _heads() -> list[int] | None:
    """The value of --heads; None is all."""
    for value in FLAGS.heads:
        if not value.strip().isdecimal():
            raise UserError(f"--heads takes numbers from 0 with commas between, got {value!r}.")
    return list(map(int, FLAGS.heads)) or None


def _tell(data) -> None:
    """Prints both sides, and how the translation was found."""
    print(f"source: {data.source.text}")
    print(f"target: {data.target.text}")
    if data.tree:
        print(f"tree: {data.tree}")
    if data.search:
        figure = "score" if data.search.finished else "log p"
        steps = len(data.search.steps)
        print(f"{figure} {data.search.score:.3f} after {steps} steps of beam search")
        print(data.search.stopped)


def _draw(data, path: str, heads: list[int] | None) -> None:
    from t2t_keras.inspection.attention_figure import attention_figure
    from t2t_keras.inspection.figures import save_figure

    figure = attention_figure(
        data if FLAGS.subwords else data.by_words(),
        FLAGS.attention,
        FLAGS.layer,
        heads,
        FLAGS.words or None,
    )
    save_figure(figure, path)
