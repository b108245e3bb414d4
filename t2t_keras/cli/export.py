"""`t2t-keras-export`: exports a trained model as a SavedModel or for CTranslate2.

Example:
    t2t-keras-export --output_dir=run --decode_hparams=beam_size=4,alpha=0.6

Give --output_dir or --checkpoint_path. One of tensor2tensor may need --problem, --data_dir and --hparams_set.
"""

import os

from t2t_keras.cli import app, options
from t2t_keras.cli.options import FLAGS, choice, integer, string, switch
from t2t_keras.errors import UserError, warn
from t2t_keras.t2t_names import is_users_own

_SAVED_MODEL_FLAGS = (
    *("version", "precision", "default_signature", "align_heads"),
    *("warm_up", "decode_hparams", "xla", "constraints"),
)


def define_flags() -> None:
    options.define(*options.TRAINED_MODEL)
    options.define_search()
    options.define_precision()
    string("export_dir", "Output directory; default: export beside the checkpoint.")
    choice("format", "saved_model", ["saved_model", "ctranslate2"], "Format of the export.")
    integer("version", None, "Version number of the SavedModel; default: the next free one.")
    signature = "Signature for clients that name none; default: translate, complete or classify."
    string("default_signature", signature)
    string("align_heads", "Add the signature align, by LAYER:HEAD, LAYER or mean (+1: later).", "")
    switch("constraints", "Add the signature translate_with_phrases, for words that must appear.")
    switch("warm_up", "Add warm-up requests, which the server runs when it starts.", default=True)


def main() -> None:
    options.require_trained_model()
    given = options.given(*_SAVED_MODEL_FLAGS)
    if FLAGS.format != "saved_model" and given:
        raise UserError(f"{given[0]} needs --format=saved_model, got --format={FLAGS.format}.")

    settings = options.decode_settings()
    loaded = options.trained_model()
    if own := [n for n in ("format_output", "constraint") if is_users_own(type(loaded.problem), n)]:
        warn(f"an export lacks {' and '.join(own)} of {loaded.problem.name}, which decoding calls")
    beside = os.path.join(os.path.dirname(loaded.prefixes[0]), "export")
    directory = options.directory("export_dir") or beside
    if FLAGS.format == "ctranslate2":
        from t2t_keras.export.ctranslate2 import export_ctranslate2

        export_ctranslate2(loaded.model, loaded.encoders, directory)
        print(f"{directory} is a CTranslate2 model")
        return
    from t2t_keras.export import export_saved_model
    from t2t_keras.export.served import ALIGN, WITH_PHRASES, served_class

    names = [*served_class(loaded.model).names, *([ALIGN] if FLAGS.align_heads else [])]
    names += [WITH_PHRASES] if FLAGS.constraints else []
    as_t2t = "problems" in FLAGS and "serialized_example" in names  # for T2T's clients
    default = FLAGS.default_signature or ("serialized_example" if as_t2t else names[0])
    path = export_saved_model(
        loaded.model,
        loaded.encoders,
        directory,
        settings,
        version=FLAGS.version,
        default_signature=default,
        warm_up=FLAGS.warm_up,
        align_heads=FLAGS.align_heads,
        phrases=FLAGS.constraints,
    )
    start = "" if loaded.problem.num_classes else "sampling_"  # a class is not searched for
    unused = [name for name in options.SEARCH_SETTINGS if name.startswith(start)]
    if changed := [n for n in unused if getattr(settings, n) != getattr(type(settings), n)]:
        warn(f"{', '.join(changed)}: no effect in this export")
    listed = [f"{default} (serving_default)", *(name for name in names if name != default)]
    print(f"{path} has the {'signatures' if len(names) > 1 else 'signature'} {', '.join(listed)}")


run = app.command(define_flags, main)

if __name__ == "__main__":
    run()
