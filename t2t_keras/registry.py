"""Registry of hparams sets, problems and models, both built-in and from a user's own directory."""

import importlib
import os
import re
import sys
import traceback
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from t2t_keras import t2t_modules, t2t_names
from t2t_keras.errors import UserError, warn
from t2t_keras.model_kinds import LANGUAGE_MODEL
from t2t_keras.settings import HParams, split_items
from t2t_keras.t2t_names import snake_case as default_name

__all__ = ["hparams", "import_user_directory", "list_hparams", "list_models", "list_problems"]
__all__ += ["model", "problem", "register_hparams", "register_logits_processor"]
__all__ += ["register_model", "register_problem"]

_C = TypeVar("_C", bound=type)

_sets: dict[str, Callable[[], HParams]] = {}
_problems: dict[str, type] = {}
_aliases: dict[str, str] = {}
_logits_processors: dict[str, Callable[..., Callable]] = {}
# Imported when first used.
_OURS = {"transformer": "Transformer", "transformer_encoder": "TransformerClassifier"}
_models: dict[str, type | None] = dict.fromkeys(_OURS)
_user_directories: list[str] = []

# Hparams sets


def register_hparams(name_or_function: str | Callable[[], HParams] | None = None):
    """Registers and returns a function that returns an `HParams`, under its own name or another.

    As `@register_hparams`, or with a name. A name that is taken is a `UserError`, here and below, unless
    it is one of ours and you register another: yours then replaces it, with a warning.
    """
    return _register(_sets, "hparams set", name_or_function)


def derive_hparams(name: str, base: Callable[[], HParams], **changes: Any) -> Callable[[], HParams]:
    """Registers a set that is `base` with some settings changed, and returns its function."""
    return register_hparams(name)(lambda: base().replace(**changes))


def list_hparams() -> list[str]:
    """Returns the names of all hparams sets, sorted."""
    t2t_modules.load("hparams")
    return sorted(_sets)


def hparams(spec: str, overrides: str = "") -> HParams:
    """Returns the settings that `spec` names.

    Args:
        spec: as in `--hparams`: the name of one set and optional overrides `name=value`, such as
            "transformer_big" or "transformer_big,batch_size=1024"; anything else is a `UserError`.
        overrides: further overrides in T2T's grammar; see `HParams.override`.
    """
    t2t_modules.load("hparams")
    items = split_items(spec)
    names = [item for item in items if "=" not in item]
    if len(names) != 1:
        got = f"{len(names)} ({', '.join(names)})" if names else "none"
        raise UserError(
            f"expected the name of one hparams set in {spec!r}, got {got}: "
            "write a set and, after commas, name=value"
        )
    name, changes = names[0], [item for item in items if "=" in item]
    if name not in _sets:
        raise t2t_names.unknown("hparams set", name, _sets, f"{len(_sets)} are registered")
    hp = _sets[name]()
    if not isinstance(hp, HParams):
        raise UserError(f"hparams set {name!r} must return an HParams, got {type(hp).__name__}")
    return hp.named(name).override(",".join([*changes, *[overrides] * bool(overrides.strip())]))


def spec(hp: HParams) -> str:
    """The inverse of `hparams`: a set's name and the overrides to it; "" if the set is unknown."""
    try:
        base = hparams(hp.set_name)
    except UserError:  # the set of a user directory that is not loaded, or no set
        return ""
    changed = []
    for name, (ours, _) in hp.diff(base).items():
        is_text = isinstance(ours, str)  # one with commas needs the brackets that a list has
        text = f"[{ours}]" if is_text and "," in ours else str(ours)
        changed.append(f"{name}={text if is_text else text.replace(' ', '')}")
    return ",".join([hp.set_name, *changed])


# Problems


def register_problem(name_or_class: str | type | None = None):
    """Registers a problem class, as `@register_problem` or with a name.

    The class is called as `cls(was_reversed=..., was_copy=...)`; its attribute `name` is set. The
    default name is the class name in snake case, as in T2T: `TranslateEndeWmt32k` is
    `translate_ende_wmt32k`. It must not end in "_rev" or "_copy".
    """
    return _register(_problems, "problem", name_or_class)


def derive_problem(base: _C, class_name: str, **attributes: Any) -> _C:
    """Registers and returns a subclass of a problem with some attributes changed."""
    items = [f"{n}={value}" for n, value in attributes.items() if isinstance(value, str | int)]
    text = f"The same as {base.name} with {', '.join(items)}."  # type: ignore[attr-defined]
    attributes |= {"__doc__": text, "__module__": base.__module__}
    return register_problem(type(class_name, (base,), attributes))


def register_problem_alias(alias: str, name: str) -> None:
    """Registers another name for the problem `name`, which may end in "_rev" or "_copy"."""
    _check_free(_problems, "problem", alias)
    _aliases[alias] = name


def list_problems() -> list[str]:
    """Returns the names of all problems, sorted, without aliases and suffixes."""
    _import_ours()
    return sorted(_problems)


def problem(name: str) -> Any:
    """Returns the problem of a name or alias, which may end in "_rev", "_copy" or both.

    Raises a `UserError` if the name is unknown, or a problem of T2T that is not supported.
    """
    base, was_reversed, was_copy = name, False, False
    if name not in _problems:
        _import_ours()
    if name not in _problems:
        base, was_reversed, was_copy = _without_suffixes(name)
    for _ in _aliases:  # one may name another
        if base in _aliases:
            base, reverses, copies = _without_suffixes(_aliases[base])
            was_reversed, was_copy = was_reversed != reverses, was_copy or copies
    if base not in _problems:
        note = f"{len(_problems)} are registered"
        raise t2t_names.unknown("problem", base, [*_problems, *_aliases], note)
    return _problems[base](was_reversed=was_reversed, was_copy=was_copy)


def problem_class(class_name: str) -> type | None:
    """Returns the registered class of this name in T2T, such as TranslateEndeWmt32k; None: there is none."""
    _import_ours()
    return _problems.get(default_name(class_name)) if class_name[:1].isupper() else None


def _without_suffixes(name: str) -> tuple[str, bool, bool]:
    """Splits the suffixes "_rev" and "_copy", in either order, off a problem's name."""
    base, suffixes = re.findall(r"(?s)^(.+?|)((?:_rev|_copy)*)\Z", name)[0]
    for suffix in ("_rev", "_copy"):
        if suffixes.count(suffix) > 1:
            raise UserError(f"problem {name!r} has the suffix {suffix!r} twice: write it once")
    return base, "_rev" in suffixes, "_copy" in suffixes


# Logits processors and models


def register_logits_processor(name_or_function: str | Callable[..., Callable]):
    """Registers a function from a number to a logits processor, for the decoding commands.

    `--decode_hparams=logits_processors=NAME:1.5` calls it with 1.5; `decoding.beam_search` describes
    processors. The default name is the function's.
    """
    return _register(_logits_processors, "logits processor", name_or_function)


def logits_processor(name: str) -> Callable[..., Callable]:
    """Returns the function registered under a name; a `UserError` for an unknown one."""
    if name not in _logits_processors:
        note = f"Registered: {', '.join(sorted(_logits_processors)) or 'none'}"
        raise t2t_names.unknown("logits processor", name, _logits_processors, note)
    return _logits_processors[name]


def register_model(name_or_class: str | type | None = None):
    """Registers a subclass of `Transformer` for `--model`, as `@register_model` or with a name.

    The class is called with the arguments of `Transformer`; the default name is its own in snake case.
    """
    return _register(_models, "model", name_or_class)


def list_models() -> list[str]:
    """Returns the names of all models, sorted."""
    return sorted(_models)


def model(name: str) -> Any:
    """Returns the class of a model: `Transformer` or a registered subclass.

    Raises a `UserError` if the name is unknown, a model of T2T that is not supported, or not the name
    of a subclass of `Transformer`.
    """
    import t2t_keras

    require_model(name)
    found = _models[name] or getattr(t2t_keras, _OURS[name])
    if not (isinstance(found, type) and issubclass(found, t2t_keras.Transformer)):
        raise UserError(f"model {name!r} must subclass t2t_keras.Transformer, got {found!r}")
    return found


def require_fit(problem: Any, model: Any) -> None:
    """Raises a `UserError` unless a model, or its class, suits a problem."""
    if problem.num_classes and not model.classifies:
        raise UserError(f"{problem.name} classifies texts: give --model=transformer_encoder.")
    if model.classifies and not problem.num_classes:
        raise UserError(
            f"--model=transformer_encoder classifies texts, but {problem.name} has no classes: "
            "leave out --model, give another problem, or set num_classes in its class."
        )
    if not isinstance(model, type) and model.kind != problem.kind:
        kind = "a language model" if model.kind == LANGUAGE_MODEL else "a model with inputs"
        inputs = "inputs" if problem.has_inputs else "no inputs"
        raise UserError(
            f"the checkpoint is of {kind}, but {problem.name} has {inputs}: give the problem that it "
            "was trained on."
        )


def require_model(name: str) -> None:
    """Raises a `UserError` unless a model of that name is registered."""
    if name not in _models:
        raise t2t_names.unknown("model", name, _models, f"Registered: {', '.join(list_models())}")


def summary(name: str) -> str:
    """Returns the first line of the docstring of a problem, hparams set or model; "" without one."""
    found = _problems.get(name) or _sets.get(name) or _models.get(name)
    return (found.__doc__ or "").strip().split("\n")[0] if found else ""


def model_name(model: Any) -> str:
    """Returns the registered name of a model's class or of its first base class that has one."""
    import t2t_keras

    names = {cls or getattr(t2t_keras, _OURS[name]): name for name, cls in _models.items()}
    return next((names[cls] for cls in type(model).__mro__ if cls in names), "transformer")


# User directories, and names in general


def import_user_directory(path: str) -> None:
    """Imports a user's package of problems, hparams sets and models (`--t2t_usr_dir`).

    The directory has an `__init__.py`, which may import its own modules relatively, and may be written
    for tensor2tensor: see `t2t_modules`. Raises a `UserError` if it has none, its name belongs to another
    module, or its import fails.
    """
    directory = os.path.abspath(os.path.expanduser(path))
    parent, name = os.path.split(directory)
    start = os.path.join(directory, "__init__.py")
    if not os.path.isdir(directory):
        raise UserError(f"no user directory {path!r}: give a directory of Python modules")
    if not os.path.isfile(start):
        files = sorted(Path(directory).glob("*.py"))
        names = [each.stem for each in files if "register_" in each.read_text("utf-8", "ignore")]
        raise UserError(
            f"user directory {path!r} has no __init__.py, so nothing in it is registered: add one "
            f"with the line: from . import {', '.join(names) or 'FILE'}"
        )
    _user_directories.append(directory)
    sys.path.insert(0, parent)
    t2t_modules.install(directory)
    try:
        module = importlib.import_module(name)
    except (UserError, KeyboardInterrupt):
        raise
    except BaseException as error:  # `sys.exit(0)` would end the command as if it had succeeded
        place = place_in(error, lambda file: file.startswith(directory + os.sep))
        what = f"importing user directory {path!r} failed{place}"
        raise UserError(f"{what}: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(parent)
    if not module.__file__ or not os.path.samefile(module.__file__, start):
        raise UserError(
            f"user directory {path!r} has the name of a module that is already imported: rename it"
        )


def user_directories() -> list[str]:
    """Returns the directories that `import_user_directory` has imported, for other processes."""
    return list(_user_directories)


def error_of_user_code(error: BaseException) -> UserError | None:
    """Returns a `UserError` for an exception from a user directory; None if our code raised it."""
    package = os.path.dirname(os.path.abspath(__file__))
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if any(frame.filename.startswith(directory + os.sep) for directory in _user_directories):
            place = f"{frame.filename}:{frame.lineno}, in {frame.name}"
            return UserError(f"{place}, raised {type(error).__name__}: {error}")
        if frame.filename.startswith(package + os.sep):
            # A call with arguments that a function does not have is no frame of that function.
            bases = (kind.__mro__[:-1] for kind in filter(None, _problems.values()))
            called: list[Any] = [*chain.from_iterable(bases), *_sets.values()]
            theirs = [each for each in called if not _is_ours(each)]
            starts = tuple(f"{each.__qualname__}{end}" for each in theirs for end in (".", "("))
            if isinstance(error, TypeError) and str(error).startswith(starts):
                return UserError(f"{error}: give it the arguments that tensor2tensor calls it with")
            break
    return None


def place_in(error: BaseException, is_meant: Callable[[str], bool]) -> str:
    """Returns " at FILE:LINE", the innermost place of an exception in a file that is meant; or ""."""
    frames = traceback.extract_tb(error.__traceback__)
    places = [f" at {each.filename}:{each.lineno}" for each in frames if is_meant(each.filename)]
    return places[-1] if places else ""


def _register(table: dict[str, Any], kind: str, name_or_object: Any, name: str = "") -> Any:
    if name_or_object is None or isinstance(name_or_object, str):
        return lambda registered: _register(table, kind, registered, name_or_object or "")
    name = name or default_name(name_or_object.__name__)
    if not _is_ours(name_or_object):
        _import_ours()  # first, so that these can be replaced
        tables = (_problems, _aliases) if table is _problems else (table,)
        for names in tables:
            if name in names and _is_ours(table.get(name)):
                warn(f"{kind} {name!r} of {name_or_object.__module__} replaces the built-in one")
                del names[name]
    _check_free(table, kind, name)
    table[name] = name_or_object
    if table is _problems:
        name_or_object.name = name
    return name_or_object


def _import_ours() -> None:
    """Imports our sets and problems, when first needed: it is slow."""
    for package in ("hparams", "problems"):
        importlib.import_module(f"t2t_keras.{package}")


def _is_ours(registered: Any) -> bool:
    """Returns True for what this library registers; None stands for one not imported yet, or an alias."""
    return registered is None or registered.__module__.startswith("t2t_keras.")


def _check_free(table: dict[str, Any], kind: str, name: str) -> None:
    if not re.fullmatch(r"\w[\w.+-]*", name):  # it names files, too
        raise UserError(f"invalid {kind} name {name!r}: use letters, digits, _, - and dots")
    if name in table or (table is _problems and name in _aliases):
        raise UserError(f"{kind} {name!r} is registered already: choose another name")
    if table is _problems and _without_suffixes(name)[0] != name:
        raise UserError(f"the name of problem {name!r} must not end in '_rev' or '_copy'")
