"""How every command starts and how it ends: flags in, one line out when something is wrong."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from absl import app, flags

from t2t_keras.cli import t2t_flags
from t2t_keras.errors import UserError, nearest

_BROKEN_PIPE = 141  # a shell's


def start(main: Callable[[list[str]], None], argv: Sequence[str] | None = None) -> None:
    """Parses the flags, runs `main(rest)` and exits: 0, or 2 after a one-line message.

    Where nobody reads on (`| head`), it ends without a word and with a shell's code for that, 141.
    Flags are parsed before anything heavy is imported, so `main` imports TensorFlow itself.

    Args:
        main: gets the arguments that are not flags (without the program name).
        argv: the command line with the program name first; `sys.argv` unless given.
    """
    try:
        _run(main, argv)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the rest of the text
        sys.exit(_BROKEN_PIPE)
    sys.exit(0)


def _run(main: Callable[[list[str]], None], argv: Sequence[str] | None) -> None:
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
            # It may be written with one dash, or stand in a --flagfile.
            named = [argv[0], f"--{error.flagname}", *argv[1:]]
            _fail(program, t2t_flags.explain(named, list(flags.FLAGS)))
        hint = nearest(error.flagname, list(flags.FLAGS))
        _fail(program, f"unknown flag --{error.flagname}.{hint} See {program} --help.")
    except flags.Error as error:
        _fail(program, str(error))
    except SystemExit:
        return  # --help has answered; absl would exit with 1
    try:
        main(list(rest))
    except UserError as error:
        _fail(program, str(error))
    except KeyboardInterrupt:
        sys.exit(130)


def _fail(program: str, message: str) -> None:
    line = " ".join(message.split())
    print(f"{program}: {line}", file=sys.stderr)
    sys.exit(2)
