"""`t2t-keras-inspect`: looks at what its first argument names, before, in or after a training."""

from __future__ import annotations

from absl import flags

from t2t_keras.cli import app, inspect_data, options
from t2t_keras.errors import UserError, nearest

# A subject has `define_flags()` for flags of its own, and `main(arguments)` for those after it.
_SUBJECTS = {"data": inspect_data}


def define_flags() -> None:
    """Defines the flags that subjects share, then those of each."""
    options.define_problem()
    options.define_hparams()
    flags.DEFINE_string("plot", None, "data: also draw the lengths: a file such as lengths.png.")
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
    _SUBJECTS[name].main(rest)


def run() -> None:
    """The console script."""
    define_flags()
    app.start(main)


if __name__ == "__main__":
    run()
