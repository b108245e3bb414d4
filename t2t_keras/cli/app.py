"""Start and end of every command: flags are parsed, and an error is one line."""

from __future__ import annotations

import glob
import math
import os
import re
import sys
from collections.abc import Callable, Sequence

from absl import app, flags

from t2t_keras import registry, t2t_names
from t2t_keras.allowed_values import INT32
from t2t_keras.cli import options
from t2t_keras.errors import UserError, for_terminal, nearest

_BROKEN_PIPE = 141  # a shell's
_SHOWN = 100  # characters of a wrong value


def start(main: Callable[[list[str]], None], argv: Sequence[str] | None = None) -> None:
    """Parses the flags, runs `main(rest)` and exits: 0, or 2 after a one-line message.

    If its output is closed (`| head`), it ends silently with a shell's code for that, 141.
    Flags are parsed before anything heavy is imported, so `main` imports TensorFlow itself.

    Args:
        main: gets the arguments that are not flags (without the program name).
        argv: the command line with the program name first; `sys.argv` unless given.
    """
    sys.stdout, sys.stderr = map(for_terminal, (sys.stdout, sys.stderr))
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
    ours = _define_flags_of_t2t()
    try:
        rest = flags.FLAGS(argv)[1:]
    except flags.UnrecognizedFlagError as error:
        if error.flagname.startswith("hp_"):
            name = error.flagname.removeprefix("hp_")
            _fail(program, f"--{error.flagname} of tensor2tensor: give --hparams={name}=VALUE.")
        hint = nearest(error.flagname, list(flags.FLAGS))
        _fail(program, f"unknown flag --{error.flagname}.{hint} See {program} --help.")
    except flags.Error as error:
        _fail(program, str(error))
    except SystemExit:
        return  # --help has answered; absl would exit with 1
    try:
        _require_plain_numbers()
        _tell_repeated(program)
        options.require_model()
        _require_done_anyway(ours)
        if flags.FLAGS.registry_help:
            print(options.registry_help())
            return
        main(list(rest))
    except UserError as error:
        _fail(program, str(error))
    except KeyboardInterrupt:
        sys.exit(130)
    except (Exception, SystemExit) as error:  # a user's own code may raise either
        if told := registry.error_of_user_code(error):
            _fail(program, str(told))
        if wrapped := re.search(
            r"\bUserError: (.*)", str(error)
        ):  # by TensorFlow, in a tf.data pipeline
            _fail(program, wrapped[1])
        raise


def _require_plain_numbers() -> None:
    """Refuses what no flag means, whatever its range: NaN, infinity and more than 32 bits."""
    for name in flags.FLAGS:
        value, parser = flags.FLAGS[name].value, flags.FLAGS[name].parser
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"flag --{name}={value}: {value} is not {parser.syntactic_help}.")
        most = max(INT32, getattr(parser, "upper_bound", None) or 0)
        if isinstance(value, int) and abs(value) > most:
            raise UserError(f"flag --{name}={str(value)[:_SHOWN]}: {most} is the most.")


def _tell_repeated(program: str) -> None:
    """Says which of a flag's values counts if it has been given several times."""
    for name in flags.FLAGS:
        flag = flags.FLAGS[name]
        if flag.present > 1:
            told = f"--{name} is given {flag.present} times; the last counts: {flag.value}"
            print(f"{program}: {told}", file=sys.stderr)


def _flags_of_t2t() -> list[tuple[str, t2t_names.Absent]]:
    found = [(name, t2t_names.absent("flag", name)) for name in t2t_names.names("flag")]
    return [(name, known) for name, known in found if known]


def _define_flags_of_t2t() -> set[str]:
    """Defines the flags of T2T's that a command does not have; returns the names of those it has.

    So a command line of T2T's is read as T2T reads it. They are left out of --help.
    """
    ours = set(flags.FLAGS)
    for name, known in _flags_of_t2t():
        if name not in ours:
            define = flags.DEFINE_boolean if known.is_switch else flags.DEFINE_string
            define(name, None, f"T2T's: {known.reason}.", module_name="tensor2tensor")
    return ours


def _require_done_anyway(ours: set[str]) -> None:
    """Refuses flags of T2T's that ask for anything but what is done anyway.

    Args:
        ours: names of the flags that the command has.

    Raises:
        UserError: what to do instead of each.
    """
    told = []
    for name, known in _flags_of_t2t():
        value = None if name in ours else flags.FLAGS[name].value
        if value is None or (name == "worker_gpu" and value == str(_devices_used(ours))):
            continue
        written = str(value).lower() if known.is_switch else value
        if name == "worker_gpu" or not known.is_done_anyway(written):
            told.append(f"--{name}={written} of tensor2tensor is not here: {known.reason}.")
    if told:
        raise UserError(" ".join(told))


def _devices_used(ours: set[str]) -> int:
    """Returns how many devices a command will use: one, or all visible GPUs if it has --distribute."""
    if "distribute" not in ours or flags.FLAGS.distribute == "none":
        return 1
    gpus = len(glob.glob("/dev/nvidia[0-9]*"))
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        gpus = min(gpus, len(visible.split(",")) if visible else 0)
    return max(1, gpus)


def _fail(program: str, message: str) -> None:
    line = " ".join(message.split())
    print(f"{program}: {line}", file=sys.stderr)
    sys.exit(2)
