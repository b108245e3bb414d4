"""`t2t-keras-export`: exports a trained model as a SavedModel or for CTranslate2.

Example:
    t2t-keras-export --output_dir=run --export_dir=served --decode_hparams=beam_size=4,alpha=0.6

Give --output_dir or --checkpoint_path. A checkpoint of tensor2tensor may need --problem, --data_dir and
--hparams_set.
"""

from __future__ import annotations

import os

from absl import flags

from t2t_keras.cli import app, options
from t2t_keras.errors import UserError

FLAGS = flags.FLAGS

_SAVED_MODEL_FLAGS = (
    *("version", "precision", "default_signature", "align_heads"),
    *("warm_up", "decode_hparams", "xla"),
)


def define_flags() -> None:
    """Defines the flags of the command: T2T's, as far as they apply, and others."""
    options.define_trained_model()
    options.define_search()
    options.define_precision()
    flags.DEFINE_string(
        "export_dir", None, "Output directory; default: export beside the checkpoint."
    )
    flags.DEFINE_enum(
        "format", "saved_model", ["saved_model", "ctranslate2"], "Format of the export."
    )
    flags.DEFINE_integer(
        "version",
        None,
        "Version number of the SavedModel; default: the next free one.",
        lower_bound=0,
    )
    flags.DEFINE_string(
        "default_signature",
        None,
        "Signature for clients that name none; default: translate, complete or classify.",
    )
    flags.DEFINE_string(
        "align_heads",
        "",
        "Adds the signature align, word alignments by these heads: LAYER:HEAD, LAYER or mean; +1: at "
        "the next step.",
    )
    flags.DEFINE_bool(
        "warm_up", True, "Add warm-up requests, which the server runs when it starts."
    )


def main(arguments: list[str]) -> None:
    """Loads the checkpoint and exports it in the requested format."""
    options.reject_arguments(arguments)
    options.require_trained_model()
    given = [f"--{name}" for name in _SAVED_MODEL_FLAGS if FLAGS[name].present]
    if FLAGS.format != "saved_model" and given:
        raise UserError(f"{given[0]} needs --format=saved_model, got --format={FLAGS.format}.")

    settings = options.decode_settings()
    loaded = options.trained_model()
    beside = os.path.join(os.path.dirname(loaded.prefixes[0]), "export")
    directory = options.directory("export_dir") or beside
    if FLAGS.format == "ctranslate2":
        to_ctranslate2(loaded, directory)
    else:
        to_saved_model(loaded, directory, settings)


def to_saved_model(loaded, directory: str, settings) -> None:
    """Exports a SavedModel and prints its signatures."""
    from t2t_keras.export import export_saved_model
    from t2t_keras.export.served import ALIGN, served_class

    path = export_saved_model(
        loaded.model,
        loaded.encoders,
        directory,
        settings,
        version=FLAGS.version,
        default_signature=FLAGS.default_signature,
        warm_up=FLAGS.warm_up,
        align_heads=FLAGS.align_heads,
    )
    names = [*served_class(loaded.model).names, *([ALIGN] if FLAGS.align_heads else [])]
    default = FLAGS.default_signature or names[0]
    listed = [f"{default} (serving_default)", *(name for name in names if name != default)]
    print(f"{path} has the {'signatures' if len(names) > 1 else 'signature'} {', '.join(listed)}")


def to_ctranslate2(loaded, directory: str) -> None:
    """Exports a directory that CTranslate2 can load."""
    from t2t_keras.export.ctranslate2 import export_ctranslate2

    if len(loaded.prefixes) > 1:
        raise UserError(
            "CTranslate2 does not support ensembles: give one checkpoint in --checkpoint_path."
        )
    export_ctranslate2(loaded.model, loaded.encoders, directory)
    print(f"{directory} is a CTranslate2 model")


def run() -> None:
    """The console script."""
    define_flags()
    app.start(main)


if __name__ == "__main__":
    run()
