"""Runs every command: parses flags, prints help, reports an error in one line."""

import glob
import io
import math
import os
import re
import signal
import sys
import textwrap
from collections.abc import Callable, Sequence

from absl import app, flags

from t2t_keras import __version__, registry, t2t_names
from t2t_keras.cli import options
from t2t_keras.errors import UserError, for_terminal, nearest
from t2t_keras.progress import EndAtSignals
from t2t_keras.settings import INT32

_BROKEN_PIPE = 141  # the shell's exit code for SIGPIPE
_SHOWN = 100  # characters of a wrong value in a message
_HELP = {"--help", "-help", "-h", "-?", "--helpshort"}
# Flags of T2T that ask for something else than what a command does.
_OTHER_WORK = re.compile(
    "--(cloud_mlengine=|export_as_tfhub|only_list|schedule=(?!.*train(?!_data)|local))"
)

Main = Callable[..., None]


def command(
    define_flags: Callable[[], None],
    main: Main,
    required: Sequence[str] = (),
    most_arguments: int = 0,
) -> Callable[..., None]:
    """Returns a command's `run`, which parses the flags, runs `main(*arguments)` and exits.

    It exits with 0, or with 2 after a one-line message; silently with the shell's code, 141, if its output
    is closed (`| head`). Streams that the shell closed (`>&-`) are empty or drop what is written. Flags are
    parsed before anything heavy is imported, so `main` must call `options.import_tensorflow`.

    Args:
        define_flags: defines the command's flags.
        main: called with the arguments that are not flags; its module's docstring begins the help.
        required: names of the flags to list first in the help.
        most_arguments: how many arguments that are not flags are accepted.

    If `lenient`, `run` does as T2T's commands: it warns of flags without effect or unknown, returns, and takes
    what `tf.app.run` has left over, if that has parsed the flags.
    """

    def run(argv: Sequence[str] | None = None, lenient: bool = False) -> None:
        if lenient:
            define_for_scripts(define_flags, running=True)
            argv = [sys.argv[0], *(argv or [])[1:]] if flags.FLAGS.is_parsed() else sys.argv
        else:
            define_flags()
        for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
            if getattr(sys, name) is None:
                setattr(sys, name, open(os.devnull, mode, errors="replace"))
            elif mode == "w" and isinstance(stream := getattr(sys, name), io.TextIOWrapper):
                stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # in any locale
        sys.stdout, sys.stderr = map(for_terminal, (sys.stdout, sys.stderr))
        words = list(sys.argv if argv is None else argv)
        program = os.path.basename(words[0])
        try:
            with EndAtSignals() as stop:
                _run(main, words, required, most_arguments, lenient)
                sys.stdout.flush()
        except KeyboardInterrupt:
            name = stop.name or "SIGINT"
            print(f"{program}: stopped by {name}", file=sys.stderr)
            _flush_or_discard()
            sys.exit(128 + signal.Signals[name])  # the shell's code
        except BrokenPipeError:
            _flush_or_discard()
            sys.exit(_BROKEN_PIPE)
        except OSError as error:
            _fail(program, f"standard output cannot be written: {error.strerror}.")
        if not lenient:
            sys.exit(0)

    return run


def define_for_scripts(define_flags: Callable[[], None], running: bool = False) -> None:
    """Defines a command's flags and T2T's, with the values that a script has given flags of these names."""
    if flags.FLAGS.is_parsed() and not running:
        return
    flags.FLAGS.set_gnu_getopt()
    others = {flags.FLAGS[name] for name in flags.FLAGS}
    flags.FLAGS.remove_flag_values(list(flags.FLAGS))
    define_flags()
    _define_flags_of_t2t()
    if "problem" in flags.FLAGS:
        flags.DEFINE_alias("problems", "problem", module_name="tensor2tensor")
    for name in flags.FLAGS:
        flags.FLAGS[name].allow_override = True  # a script may define a flag of its own
    for flag in others:
        if flag.name not in flags.FLAGS:
            flags.FLAGS[flag.name] = flag
            continue
        new, value = flags.FLAGS[flag.name], flag.value
        if not flag.allow_override:
            new.value = value
        elif not flag.using_default_value and value is not None:
            if isinstance(value, list) and not isinstance(new, flags.MultiFlag):
                value = ",".join(value)
            new.parse(str(value) if type(value) in (int, float) else value)
            new.using_default_value = False


def _flush_or_discard() -> None:
    """Flushes standard output or discards what cannot be written, or Python would fail at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(main: Main, argv: list[str], required: Sequence[str], most: int, lenient: bool) -> None:
    program = os.path.basename(argv[0])
    if argv[1:] == ["--version"]:  # alone: with a value it is a flag of t2t-keras-export
        print(f"{program} {__version__}")
        return
    app.define_help_flags()
    for module, defined in list(flags.FLAGS.flags_by_module_dict().items()):
        if module.startswith("t2t_keras."):  # makes --help show them
            for flag in defined:
                flags.FLAGS.register_key_flag_for_module(argv[0], flag)
    if _HELP.intersection(argv[1:]):
        print(help_text(main, argv[0], required))
        return
    theirs = _define_flags_of_t2t()
    try:
        rest = flags.FLAGS(argv, known_only=lenient)[1:]
    except flags.UnrecognizedFlagError as error:
        if error.flagname.startswith("hp_"):
            name = error.flagname.removeprefix("hp_")
            _fail(program, f"--{error.flagname} of tensor2tensor: give --hparams={name}=VALUE.")
        shown = [flag.name for flag in flags.FLAGS.get_key_flags_for_module(argv[0])]
        hint = nearest(error.flagname, shown)
        _fail(program, f"unknown flag --{error.flagname}.{hint} See {program} --help.")
    except flags.Error as error:
        found = re.match(r"flag --(\w+)=", message := str(error))
        kind = flags.FLAGS[found[1]].parser.syntactic_help if found else ""
        wrong = r": (invalid literal|could not convert|\('Non-boolean).*"
        _fail(program, re.sub(wrong, f" is not {kind or 'true or false'}", message))
    except SystemExit:
        return  # --helpfull or --helpxml has printed the help; absl would exit with 1
    try:
        _check_values(program, lenient)
        if not lenient or "hparams_set" in flags.FLAGS:
            options.require_model()
        _answer_flags_of_t2t(program, theirs, lenient)
        if lenient:
            _take_unknown(program, rest)
        if flags.FLAGS.registry_help or ("list" in flags.FLAGS and flags.FLAGS.list):
            print(options.registry_help())
            return
        if len(rest) > most and not lenient:
            raise UserError(f"unexpected argument {rest[most]!r}: flags are written --name=value.")
        main(*rest[:most])
    except UserError as error:
        _fail(program, str(error))
    except (Exception, SystemExit) as error:  # a user's own code may raise either
        if explained := registry.error_of_user_code(error):
            _fail(program, str(explained))
        # TensorFlow wraps errors in a tf.data pipeline.
        if wrapped := re.search(r"\bUserError: (.*)", str(error)):
            _fail(program, wrapped[1])
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            name = f"{error.filename}: " if error.filename else ""
            _fail(program, f"{name}{error.strerror or error}.")  # usually a full disk
        raise


def _check_values(program: str, lenient: bool) -> None:
    """Rejects NaN, infinity and integers of more than 32 bits; warns of a flag that is given twice."""
    for name in flags.FLAGS:
        flag = flags.FLAGS[name]
        if lenient and not flag.allow_override:
            continue  # a script's own
        value, parser, text = flag.value, flag.parser, flag.serialize()
        if "\0" in text:  # of a --flagfile, or of Python
            raise UserError(f"flag --{name} has a zero byte: remove it.")
        recorded = ("dir", "prefix", "path", "files", "corpora", "sentencepiece", "from", "vocab")
        if name.endswith(recorded) and re.search(r"[\ud800-\udfff]", text):
            raise UserError(f"flag --{name} is not UTF-8, as TensorFlow and JSON need: rename it.")
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"flag --{name}={value}: {value} is not {parser.syntactic_help}.")
        most = max(INT32, getattr(parser, "upper_bound", None) or 0)
        if isinstance(value, int) and abs(value) > most:
            raise UserError(f"flag --{name}={str(value)[:_SHOWN]}: the maximum is {most}.")
        if flag.present > 1 and not isinstance(flag, flags.MultiFlag):
            warning = f"--{name} is given {flag.present} times; the last counts: {value}"
            print(f"{program}: {warning}", file=sys.stderr)


def help_text(main: Main, program: str, required: Sequence[str]) -> str:
    """Returns the help: what the command does, examples, and its flags, the required ones first."""
    about = (sys.modules[main.__module__].__doc__ or "").replace("`", "").strip().split("\n\n")
    found = {flag.name: flag for flag in flags.FLAGS.get_key_flags_for_module(program)}
    sections: dict[str, list[str]] = {"Required flags:": list(required)}
    for name in (name for name in found if name not in required):
        sections.setdefault(vars(found[name]).get("topic", "Flags:"), []).append(name)
    prose = (each if "\n  " in each else textwrap.fill(each, 80) for each in about)
    lines = ["\n\n".join(prose)]
    for title, names in sections.items():
        lines += ["", title][: 2 * bool(names)] + [_help_on(found[name]) for name in names]
    return "\n".join(lines)


def _help_on(flag: flags.Flag) -> str:
    text = f"--{'[no]' * flag.boolean}{flag.name}: {' '.join((flag.help or '').split())}"
    if flag.default_as_str not in (None, "''"):
        text += f" (default:\N{NO-BREAK SPACE}{flag.default_as_str})"
    return flags.text_wrap(text, None, "    ", "  ").replace("\N{NO-BREAK SPACE}", " ")


def _define_flags_of_t2t() -> list[t2t_names.Absent]:
    """Defines, but not for --help, the T2T flags that a command lacks: its command lines then parse."""
    known = t2t_names.table("flag")
    for each in (each for each in known if each.name not in flags.FLAGS):
        define = flags.DEFINE_boolean if _is_switch(each) else flags.DEFINE_string
        define(each.name, None, f"T2T's: {each.reason}.", module_name="tensor2tensor")
    return [each for each in known if flags.FLAGS[each.name].help.startswith("T2T's: ")]


def _is_switch(flag: t2t_names.Absent) -> bool:
    return not {"true", "false"}.isdisjoint(flag.harmless)


def _answer_flags_of_t2t(program: str, theirs: list[t2t_names.Absent], lenient: bool) -> None:
    """Rejects flags that only T2T has, or warns of them, unless their value is what is done anyway."""
    rejected = []
    for known in theirs:
        value = flags.FLAGS[known.name].value
        if value is None:
            continue
        written = str(value).lower() if _is_switch(known) else str(value)
        harmless = known.is_harmless(written)
        if known.name == "worker_gpu":
            harmless = written == str(_devices_used())
        asked = f"--{known.name}={written}"
        if lenient and not harmless and not _OTHER_WORK.match(asked):
            print(f"{program}: ignoring {asked}: {known.reason}", file=sys.stderr)
        elif not harmless:
            rejected.append(f"{asked} of tensor2tensor is not here: {known.reason}.")
    if rejected:
        raise UserError(" ".join(rejected))


def _take_unknown(program: str, rest: Sequence[str]) -> None:
    """Applies T2T's --hp_NAME=VALUE; warns of other unknown flags and of arguments."""
    words = iter(rest)
    for word in words:
        name, equals, value = word.lstrip("-").partition("=")
        if name.startswith("hp_") and "hparams" in flags.FLAGS:
            override = f"{name.removeprefix('hp_')}={value if equals else next(words, '')}"
            flags.FLAGS["hparams"].value = ",".join(filter(None, [flags.FLAGS.hparams, override]))
        else:
            print(f"{program}: {word} is ignored", file=sys.stderr)


def _devices_used() -> int:
    """Returns how many devices a command will use: one, or all visible GPUs if it has --distribute."""
    if "distribute" not in flags.FLAGS or flags.FLAGS.distribute == "none":
        return 1
    gpus = len(glob.glob("/dev/nvidia[0-9]*"))
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        gpus = min(gpus, len(visible.split(",")) if visible else 0)
    return max(1, gpus)


def _fail(program: str, message: str) -> None:
    print(f"{program}: {' '.join(message.split())}", file=sys.stderr)
    _flush_or_discard()
    sys.exit(2)
