"""`t2t-keras-inspect data|attention`: shows a problem's batches or a model's attention.

Actions and examples:
    data: the batches of a problem: shapes, padding, lengths and some examples.
        t2t-keras-inspect data --problem=translate_ende_numbers \\
            --hparams=transformer_base --data_dir=data
    attention: an interactive page that shows the attention for one translation.
        t2t-keras-inspect attention --output_dir=run --text="A sentence."

The help on a flag begins with its action, unless several have the flag.
"""

import os

from t2t_keras.cli import app, options
from t2t_keras.cli.options import FLAGS, choice, integer, string, strings, switch
from t2t_keras.errors import UserError, nearest
from t2t_keras.files import write_text
from t2t_keras.ids import without_padding

_FIGURE_FLAGS = ("attention", "layer", "heads", "words", "subwords")

_OWN_FLAGS = {
    "data": ("split", "num_examples", "random_seed"),
    "attention": (
        *("output_dir", "checkpoint_path", "decode_hparams", "model", "target_space_id"),
        *("text", "target_text", "html", "npz", *_FIGURE_FLAGS),
    ),
}
"""The flags that only one action has."""


def define_flags() -> None:
    options.define(*options.TRAINED_MODEL)
    options.define_decode_hparams()
    string("plot", "Figure file, such as plot.png: data: lengths; attention: one layer.")

    choice("split", "train", ["train", "dev", "test"], "data: part of the problem's data.")
    integer("num_examples", 3, "data: number of examples to print.")
    options.seed(0, "data: seed of the data order, as in training.")

    string("text", "attention: source text.")
    string("target_text", "attention: target text; default: the translation.")
    string("html", "attention: output page; by itself: attention.html.")
    string("npz", "attention: output file for the weights, in NumPy's format.")
    kinds = ["encoder", "decoder", "encdec"]
    choice("attention", "encdec", kinds, "attention: kind of attention in --plot.")
    integer("layer", None, "attention: layer in --plot, from 0; default: the last.")
    strings("heads", "attention: heads in --plot, from 0; default: all.")
    strings("words", "attention: query words in --plot; default: all.")
    switch("subwords", "attention: show subwords instead of words in --plot.")


def main(name: str = "") -> None:
    """Runs an action."""
    if name not in _ACTIONS:
        raise UserError(
            f"unknown action {name!r}.{nearest(name, _ACTIONS)} Use one of "
            f"{', '.join(_ACTIONS)}, such as t2t-keras-inspect data --problem=..."
        )
    [other] = _ACTIONS.keys() - {name}
    for flag in options.given(*_OWN_FLAGS[other]):
        raise UserError(
            f"{flag} is for t2t-keras-inspect {other}: it has no effect on {name}, leave it out."
        )
    _ACTIONS[name]()


def inspect_data() -> None:
    """Prints batch shapes, padding, lengths and examples of a problem."""
    data_dir, plot = options.required("data_dir"), _figure_to_write()
    problem, hp = options.problem(), options.hparams()
    options.import_tensorflow()

    from t2t_keras import data
    from t2t_keras.data import generation
    from t2t_keras.data.shards import read_index

    split, name = FLAGS.split, problem.dataset_filename()
    batches = data.Batches(problem, split, data_dir, hp, seed=FLAGS.random_seed)
    index = read_index(data_dir, name, split, problem.sides)
    lines = [
        f"problem {problem.name}, hparams {hp.set_name}",
        *generation.describe_split(data_dir, name, split, index),
        batches.description(),
        *generation.length_histogram(index.lengths),
        *generation.padding_table(index.lengths, batches.buckets),
    ]
    if FLAGS.num_examples:
        lines += _examples(batches, problem.get_feature_encoders(data_dir), FLAGS.num_examples)
    if plot:
        _plot_lengths(index.lengths, f"{problem.name}, {split}", plot)
        lines.append(f"lengths: {plot}")
    print(*lines, sep="\n")


def _examples(batches, encoders, number: int) -> list[str]:
    """Returns lines with the ids and text of the first examples in the first batch."""
    batch = next(batches.dataset().as_numpy_iterator())
    shapes = ", ".join(f"{field} {list(ids.shape)}" for field, ids in batch.items())
    lines = [f"first batch: {shapes}"]
    for row in range(min(number, len(batch["targets"]))):
        for side, encoder in encoders.items():
            ids = [*batch[side][row]]
            if len(ids) > 1:  # not a class label
                ids = without_padding(ids)
            lines += [f"  {side}: {encoder.decode(ids)}", f"    {' '.join(map(str, ids))}"]
    return lines


def _plot_lengths(lengths_by_side, title: str, path: str) -> None:
    """Plots the number of pairs by length, one curve per side."""
    import numpy as np

    from t2t_keras.inspection.attention_figure import empty_figure, save_figure

    figure = empty_figure(7, 4)
    axes = figure.add_subplot()
    for side, lengths in lengths_by_side.items():
        pairs = np.bincount(lengths)
        axes.step(range(len(pairs)), pairs, where="mid", label=side)
    axes.set(title=title, xlabel="ids, including end of sentence", ylabel="pairs")
    axes.legend()
    save_figure(figure, path)


def inspect_attention() -> None:
    """Translates a text; writes its attention as a page, figure or arrays."""
    options.require_trained_model()
    if not FLAGS.text:
        raise UserError('--text is missing: give --text="A sentence of the source."')
    if FLAGS.target_text is not None and FLAGS.decode_hparams:
        raise UserError("--decode_hparams has no effect, since --target_text is given.")
    options.require_for("--plot=FILE", FLAGS.plot, *_FIGURE_FLAGS)
    for value in FLAGS.heads:
        if not value.strip().isdecimal():
            raise UserError(f"--heads takes numbers from 0, separated by commas, got {value!r}.")
    html, npz = options.file_to_write("html"), options.file_to_write("npz")
    plot = _figure_to_write()
    if not (html or npz or plot):
        html = "attention.html"
    options.import_tensorflow()
    from t2t_keras import inspection
    from t2t_keras.decoding import DecodeSettings

    settings = DecodeSettings.parse(FLAGS.decode_hparams)
    loaded = options.trained_model()
    data = inspection.attention_data(
        loaded.model,
        loaded.encoders,
        options.valid_text(FLAGS.text, "--text"),
        FLAGS.target_text and options.valid_text(FLAGS.target_text, "--target_text"),
        problem=loaded.problem,
        settings=settings,
        title=f"{loaded.problem.name}, {os.path.basename(loaded.prefixes[0])}",
    )
    print(f"source: {data.source.text}\ntarget: {data.target.text}")
    if data.tree:
        print(f"tree: {data.tree}")
    if html:
        write_text(html, inspection.attention_page(data.to_json()))
        print(f"page: {html}")
    if npz:
        data.save(npz)
        print(f"weights: {npz}")
    if plot:
        from t2t_keras.inspection.attention_figure import save_figure

        shown = data if FLAGS.subwords else data.by_words()
        words = FLAGS.words or None
        heads = list(map(int, FLAGS.heads)) or None
        figure = inspection.attention_figure(shown, FLAGS.attention, FLAGS.layer, heads, words)
        save_figure(figure, plot)
        print(f"figure: {plot}")


def _figure_to_write() -> str | None:
    """Returns --plot, after checking that the figure can be drawn, before the model is loaded."""
    if path := options.file_to_write("plot"):
        options.import_tensorflow()
        from t2t_keras.inspection.attention_figure import require_figure

        require_figure(path)
    return path


_ACTIONS = {"data": inspect_data, "attention": inspect_attention}
run = app.command(define_flags, main, most_arguments=1)

if __name__ == "__main__":
    run()
