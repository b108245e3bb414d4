"""How every command starts and how it ends: flags in, one line out when something is wrong."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from absl import app, flags

from t2t_keras.cli import t2t_flags
from t2t_keras.errors import UserError, nearest


def start(main: Callable[[list[str]], None], argv: Sequence[str] | None = None) -> None:
    """Parses the flags, runs `main(rest)` and exits: 0, or 2 after a one-line message.

    Flags are parsed before anything heavy is imported, so `main` imports TensorFlow itself.

    Args:
        main: gets the arguments that are not flags (without the program name).
        argv: the command line with the program name first; `sys.argv` unless given.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    argv = list(sys.argv if argv is None else argv)
    program = os.path.basename(argv[0])
    app.define_help_flags()
    for module, defined in list(flags.FLAGS.flags_by_module_dict().items()):
        if module.startswith("t2t_keras."):  # so that --help shows them
            for flag in defined:
                flags.FLAGS.register_key_flag_for_module(argv[0], flag)
    try:
        rest = flags.FLAGS(argv)[1:]
    except flags.UnrecognizedFlagError as error:
        if error.flagname in t2t_flags.INSTEAD:
            _fail(program, t2t_flags.explain(argv, list(flags.FLAGS)))
        hint = nearest(error.flagname, list(flags.FLAGS))
        _fail(program, f"unknown flag --{error.flagname}.{hint} See {program} --help.")
    except flags.Error as error:
        _fail(program, str(error))
    except SystemExit:
        sys.exit(0)  # --help has answered; absl would exit with 1
    try:
        main(list(rest))
    except UserError as error:
        _fail(program, str(error))
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(0)


def _fail(program: str, message: str) -> None:
    line = " ".join(message.split())
    print(f"{program}: {line}", file=sys.stderr)
    sys.exit(2)
