"""`t2t-keras-inspect`: looks at what its first argument names, before, in or after a training."""

from __future__ import annotations

from absl import flags

from t2t_keras.cli import (
    app,
    inspect_attention,
    inspect_data,
    inspect_run,
    options,
    trained_model,
)
from t2t_keras.errors import UserError, nearest

FLAGS = flags.FLAGS

# A subject has `define_flags()` for flags of its own, and `main(arguments)` for those after it.
_SUBJECTS = {"data": inspect_data, "attention": inspect_attention, "run": inspect_run}

# Flags that are not of one subject: which take them.
_SHARED = {
    **dict.fromkeys(
        ("problem", "data_dir", "hparams_set", "hparams", "plot"), ("data", "attention")
    ),
    **dict.fromkeys(("output_dir", "checkpoint_path", "decode_hparams", "model"), ("attention",)),
    "html": ("attention", "run"),
    "t2t_usr_dir": ("data", "attention", "run"),
}


def define_flags() -> None:
    """Defines the flags that subjects share, then those of each."""
    trained_model.define_flags()
    options.define_decode_hparams()
    flags.DEFINE_string(
        "plot", None, "data: also draw the lengths; attention: one layer; into such as plot.png."
    )
    flags.DEFINE_string(
        "html", None, "attention, run: the page; of attention, attention.html if nothing is named."
    )
    for subject in _SUBJECTS.values():
        subject.define_flags()


def main(arguments: list[str]) -> None:
    """Looks at the subject, which the first argument names."""
    name, *rest = arguments or [""]
    if name not in _SUBJECTS:
        raise UserError(
            f"cannot inspect {name!r}.{nearest(name, _SUBJECTS)} Write one of "
            f"{', '.join(_SUBJECTS)}, such as t2t-keras-inspect data --problem=..."
        )
    for flag, subjects in _takers().items():
        if FLAGS[flag].present and name not in subjects:
            raise UserError(
                f"--{flag} is for t2t-keras-inspect {' and '.join(subjects)}: with {name} it has "
                "no effect, leave it out."
            )
    _SUBJECTS[name].main(rest)


def _takers() -> dict[str, tuple[str, ...]]:
    """By flag: the subjects that take it."""
    defined = FLAGS.flags_by_module_dict()
    own = {
        flag.name: (name,)
        for name, subject in _SUBJECTS.items()
        for flag in defined.get(subject.__name__, [])
    }
    return {**own, **_SHARED}


def run() -> None:
    """The console script."""
    define_flags()
    app.start(main)


if __name__ == "__main__":
    run()
