"""Flags that several commands share, with tensor2tensor's names."""

import contextlib
import dataclasses
import os
import platform
import re
import stat
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from absl import flags

from t2t_keras import registry
from t2t_keras.errors import UserError, explained, warn
from t2t_keras.files import is_special

FLAGS = flags.FLAGS

FILES = ("train_files", "dev_files", "test_files", "dev_pairs", "skip_bad_lines")
TFDS = ("tfds", "languages", "tfds_splits")
VOCABULARY = ("vocab_size", "sentencepiece")

flags.disclaim_key_flags()  # flags belong to the command that they are defined for


def string(name: str, about: str, default: str | None = None) -> None:
    """Defines a flag that takes text."""
    flags.DEFINE_string(name, default, about)


def strings(name: str, about: str, default: Sequence[str] = ()) -> None:
    """Defines a flag that takes a list, separated by commas."""
    flags.DEFINE_list(name, list(default), about)


def switch(name: str, about: str, default: bool | None = False) -> None:
    """Defines a flag that is on or off."""
    flags.DEFINE_bool(name, default, about)


choice = flags.DEFINE_enum
files = flags.DEFINE_multi_string
integer = partial(flags.DEFINE_integer, lower_bound=0)
positive = partial(flags.DEFINE_integer, lower_bound=1)
number = partial(flags.DEFINE_float, lower_bound=0)
seed = partial(integer, "random_seed", upper_bound=2**32 - 1)  # the largest that NumPy accepts


@contextlib.contextmanager
def topic(title: str) -> Iterator[None]:
    """Makes the flags that are defined in this context a section of --help."""
    before = {*FLAGS}
    yield
    for name in {*FLAGS} - before:
        vars(FLAGS[name])["topic"] = title


_SHARED = {
    "problem": "Problem, such as translate_ende_numbers.",
    "data_dir": "Directory of vocabulary and shards.",
    "t2t_usr_dir": "Python package that registers problems, hparams sets and models.",
    "model": "Registered name of the model; default: that of the run, or else transformer.",
    "hparams_set": "Name of a set of hyperparameters.",
    "hparams": "Name of a set, overrides such as batch_size=1024, or both; comma-separated.",
    "output_dir": "Directory of a run; uses its latest checkpoint.",
    "checkpoint_path": "A checkpoint, such as DIR/model.ckpt-100; several, separated by commas, form an ensemble.",
    "target_space_id": "Row of the target-space table; default: the recorded one, or the problem's (convert: 0).",
}
MODEL = ("t2t_usr_dir", "model", "hparams_set", "hparams")
TRAINED_MODEL = tuple(_SHARED)
SEARCH_SETTINGS = (
    *("beam_size", "alpha", "extra_length", "min_length", "return_beams", "write_beam_scores"),
    *("sampling_method", "sampling_temp", "sampling_keep_top_k", "sampling_keep_top_p"),
    *("sampling_seed", "logits_processors", "constrained", "long_inputs", "t2t_batches", "xla"),
)


def define(*names: str) -> None:
    """Defines flags that several commands have and that take text, or the number of a target space."""
    with topic("Model, settings and data:"):
        for name in names:
            if name == "target_space_id":
                integer(name, None, _SHARED[name])
            else:
                string(name, _SHARED[name])


def define_precision() -> None:
    with topic("Decoding:"):
        text = "Precision of weights and computation; default: the hparam activation_dtype. int8: weights only, on a CPU."
        choice("precision", None, ["float32", "bfloat16", "float16", "int8"], text)


def define_search() -> None:
    define_decode_hparams()
    with topic("Decoding:"):
        switch("xla", "Compile the search with XLA, once for each range of lengths; for GPUs.")


def define_decode_hparams() -> None:
    with topic("Decoding:"):
        string("decode_hparams", "Decode settings, such as beam_size=4,alpha=0.6.", default="")


def define_generation() -> None:
    """The flags of data generation: its places and processes, the source of `translate_files`, and --list."""
    with topic("Making data:"):
        string("tmp_dir", "Directory of source files; default: a private one in /tmp.")
        processes = "Number of processes that generate data; default: one per core."
        positive("num_concurrent_processes", None, processes, upper_bound=1024)
        for split, end in (("train", "."), ("dev", "."), ("test", ", if any.")):
            strings(f"{split}_files", f"translate_files: source and target file of {split}{end}")
        integer("dev_pairs", 0, "translate_files: how many training pairs to hold out as dev.")
        switch("skip_bad_lines", "translate_files: leave out training pairs that are not UTF-8.")
        string("corpora", "translate_files: JSON file of several corpora; see docs/data.md.")
        string("tfds", "translate_files: a TFDS dataset instead of files.")
        strings("languages", "translate_files: source and target language in --tfds.")
        splits = "translate_files: the splits of --tfds for train, dev and test."
        strings("tfds_splits", splits, ["train", "validation", "test"])
        positive("vocab_size", 2**15, "translate_files: approximate number of subwords.")
        string("sentencepiece", "translate_files: unigram, bpe or a file, not T2T's subwords.")
        switch("list", "List problems, hparams sets and models, and exit.")


def checkpoint_paths() -> list[str]:
    """Returns what --checkpoint_path, or else --output_dir, names: several for an ensemble."""
    path = directory("checkpoint_path") or required("output_dir")
    if not FLAGS.checkpoint_path or os.path.exists(path) or os.path.exists(f"{path}.index"):
        return [path]
    return [os.path.expanduser(name.strip()) for name in path.split(",")]


def require_trained_model() -> None:
    """Rejects a command line without a checkpoint, before anything heavy is loaded; warns of an unused flag."""
    if FLAGS.checkpoint_path and "problems" not in FLAGS:  # scripts of T2T's users give both
        warn_unused("--checkpoint_path names the checkpoint", "output_dir")
    for path in checkpoint_paths():
        folder, name = (path, "") if os.path.isdir(path) else os.path.split(path)
        folder, name = folder or ".", name.removesuffix(".index")
        found = os.listdir(folder) if os.path.isdir(folder) else []
        if not any(each.startswith(name) for each in found):
            raise UserError(f"no checkpoint at {path}: expected {path}.index, or a directory.")


def trained_model(path: str | None = None):
    """Returns the `TrainedModel` of a checkpoint, by default what the flags name: one or an ensemble."""
    load_user_directory()
    settings = hparams(needed=False)
    import_tensorflow()
    from t2t_keras import checkpoints, trained_model as trained

    if not settings and "problems" in FLAGS and FLAGS.checkpoint_path and FLAGS.output_dir:
        settings, _ = checkpoints.read_settings(required("output_dir"))  # as T2T's t2t-decoder
    return trained.TrainedModel(
        [path] if path else checkpoint_paths(),
        problem=FLAGS.problem,
        data_dir=directory("data_dir"),
        hparams=settings,
        model=FLAGS.model,
        precision=FLAGS.precision if "precision" in FLAGS else None,
        target_space_id=FLAGS.target_space_id,
    )


def tmp_dir() -> str:
    """Returns the value of --tmp_dir; default: a directory in /tmp that only this user can access.

    In T2T's default, /tmp/t2t_datagen, any user could place links.
    """
    if path := directory("tmp_dir"):
        return path
    path = os.path.join(tempfile.gettempdir(), f"t2t_datagen-{os.getuid()}")
    with explained(f"{path} cannot be used", OSError, remedy="give --tmp_dir"):
        with contextlib.suppress(FileExistsError):
            os.mkdir(path)
        status = os.lstat(path)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            raise UserError(f"{path} is not a directory of yours: give --tmp_dir=DIRECTORY.")
        os.chmod(path, 0o700)
    return path


def decode_settings():
    """Returns the `DecodeSettings` of --decode_hparams and --xla."""
    from t2t_keras.decode_settings import DecodeSettings

    settings = DecodeSettings.parse(FLAGS.decode_hparams)
    return dataclasses.replace(settings, xla=True) if FLAGS.xla else settings


def configure(*problems) -> None:
    """Configures `translate_files`, if it is among the problems, from its flags.

    Raises UserError if they are given without it or without --generate_data, or exclude each other.
    """
    found = given(*FILES, "corpora", *TFDS, *VOCABULARY)
    if not found:
        return
    from t2t_keras.problems.translate_files import TranslateFiles

    ours = [problem for problem in problems if isinstance(problem, TranslateFiles)]
    if not ours:
        names = ", ".join(problem.name for problem in problems)
        raise UserError(f"{found[0]} is for --problem=translate_files, got --problem={names}.")
    if "generate_data" in FLAGS and not (FLAGS.generate_data or FLAGS.on_the_fly):
        raise UserError(
            f"{found[0]} is a source for generating data: give --generate_data with it, or leave it out "
            "to use the data in --data_dir."
        )
    method, source = _source()
    for each in ours:
        getattr(each, method)(**source, vocab_size=FLAGS.vocab_size, sentencepiece=_sentencepiece())


def _source() -> tuple[str, dict[str, Any]]:
    """Returns the method of `TranslateFiles` that sets the source of the flags, and its arguments."""
    kind = "corpora" if FLAGS.corpora else "tfds" if FLAGS.tfds else "files"
    rivals = {"corpora": (*FILES, *TFDS), "tfds": FILES, "files": ()}[kind]
    for name in given(*rivals):
        raise UserError(f"{name} and --{kind} are both given: leave one out.")
    if kind == "corpora":
        from t2t_keras.data.translate import MixedCorpora

        for name in given(*(name for name in FLAGS if name.startswith("clean_"))):
            raise UserError(
                f"{name} and --corpora are both given: each corpus is cleaned by itself, with "
                f'"clean": {{"{name.removeprefix("--clean_")}": ...}} in {FLAGS.corpora}.'
            )
        return "use_corpora", {"corpora": MixedCorpora.read(required("corpora")).corpora}
    if kind == "tfds":
        languages = _some("languages", 2) if FLAGS.languages else None
        splits = _some("tfds_splits", 2, 3) if FLAGS["tfds_splits"].present else None
        return "use_tfds", {"name": FLAGS.tfds, "languages": languages, "splits": splits}
    for name in given(*TFDS):
        raise UserError(f"{name} needs --tfds=NAME; it has no effect on files.")
    if not FLAGS.train_files:
        raise UserError("--train_files=SOURCE,TARGET is missing, or give --tfds=NAME.")
    named = {"train": "train_files", "dev": "dev_files", "test": "test_files"}
    files = {side: _some(flag, 2) for side, flag in named.items() if FLAGS[flag].value}
    options = {name: FLAGS[name].value for name in ("dev_pairs", "skip_bad_lines")}
    return "use_files", files | options


def _sentencepiece() -> str | None:
    """Returns the value of --sentencepiece: a model type or the path of a model."""
    from t2t_keras.text.sentencepiece import MODEL_TYPES

    path = directory("sentencepiece")
    if path and path not in MODEL_TYPES and not os.path.isfile(path):
        raise UserError(
            f"--sentencepiece={path} is neither {' nor '.join(MODEL_TYPES)} nor a file: give one."
        )
    if path and path not in MODEL_TYPES:
        warn_unused(f"{path} has a size of its own", "vocab_size")
    return path


def _some(name: str, *numbers: int) -> list[str]:
    """Returns the value of a list flag; the number of items must be one of `numbers`."""
    values = [value.strip() for value in FLAGS[name].value or []]
    if len(values) not in numbers or not all(values):
        wanted = " or ".join(map(str, numbers))
        raise UserError(f"--{name} takes {wanted} items, separated by commas, got {len(values)}.")
    return values


def processes() -> int:
    """Returns the number of processes that generate data: the flag's, or one per available core."""
    if FLAGS.num_concurrent_processes:
        return FLAGS.num_concurrent_processes
    affinity = getattr(os, "sched_getaffinity", None)  # not on every system
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def from_flags(settings, prefix: str = "", **others):
    """Returns a dataclass of settings: the flags that are named like its fields, and others."""
    names = [field.name for field in dataclasses.fields(settings)]
    found = {name: FLAGS[prefix + name].value for name in names if prefix + name in FLAGS}
    return settings(**found | others)


def required(name: str) -> str:
    """Returns the value of a required path flag, with `~` expanded."""
    value = directory(name)
    if not value:
        raise UserError(f"--{name} is missing: give --{name}=...")
    return value


def directory(name: str) -> str | None:
    """Returns the value of an optional path flag, with `~` expanded."""
    value = getattr(FLAGS, name)
    if value and re.match("[a-z][a-z0-9+.-]*://", value):  # or it would be a directory "gs:" here
        raise UserError(f"--{name}={value} is not local: mount or copy it, and give its path.")
    return os.path.expanduser(value) if value else None


def file_to_write(name: str) -> str | None:
    """Returns the value of a flag that names an output file, after checking that it can be replaced."""
    path = directory(name)
    if path and os.path.isdir(path):
        raise UserError(f"--{name}={path} is a directory: name a file.")
    if path and not os.path.isdir(os.path.dirname(path) or "."):
        raise UserError(f"--{name}={path}: there is no directory {os.path.dirname(path)}.")
    if path and is_special(path):
        raise UserError(f"--{name}={path} is a pipe or device: name a file.")
    return path


def prefix_to_write(name: str) -> str:
    """Returns the value of a required flag that names an output checkpoint, not a directory."""
    path = required(name)
    if not os.path.basename(path) or os.path.isdir(path):  # its files would be hidden, or beside it
        example = os.path.join(path, "model.ckpt")
        raise UserError(f"--{name}={path} is a directory: add a name, such as {example}.")
    return path


def given(*names: str) -> list[str]:
    """Returns which of the named flags are given, each written as --name."""
    return [f"--{name}" for name in names if FLAGS[name].present]


def require_for(needed: str, there: object, *names: str) -> None:
    """Rejects the named flags if they are given without what they are for."""
    if not there and (found := given(*names)):
        raise UserError(f"{found[0]} is for {needed}, which is missing.")


def warn_unused(reason: str, *names: str) -> None:
    """Warns which of the named flags were given although they have no effect."""
    if found := ", ".join(given(*names)):
        print(f"ignoring {found}: {reason}", file=sys.stderr)


def problem():
    """Returns the problem that --problem names; imports --t2t_usr_dir first."""
    load_user_directory()
    return registry.problem(required("problem"))


def require_model() -> None:
    """Rejects a --model that is not registered, such as T2T's other models."""
    if "t2t_usr_dir" in FLAGS and FLAGS.model:
        if FLAGS.model not in registry.list_models():
            load_user_directory()
        registry.require_model(FLAGS.model)


def load_user_directory() -> None:
    """Imports the user's package in --t2t_usr_dir, if given; raises UserError if it cannot be imported."""
    if FLAGS.t2t_usr_dir:
        import_tensorflow()  # as most packages do
        registry.import_user_directory(FLAGS.t2t_usr_dir)


def import_tensorflow() -> None:
    """Imports TensorFlow without what it and CUDA write even if nothing is wrong, unless it fails.

    A command calls this before it first needs TensorFlow. If the user has set TensorFlow's log level,
    nothing is held back.
    """
    if platform.machine() in ("x86_64", "AMD64"):
        # Older processors have oneDNN, which is faster and has the products in 8 bits, only if asked.
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    silent = os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3") == "3"
    if not silent or "tensorflow" in sys.modules:
        return
    sys.stderr.flush()
    terminal = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            import tensorflow as tf

            tf.config.list_physical_devices()  # otherwise the first operation does this
        except Exception:
            held.seek(0)
            os.write(terminal, held.read())
            raise
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)


def registry_help() -> str:
    """Returns the text of --list (T2T's --registry_help): all models, sets and problems, one per line."""
    if "t2t_usr_dir" in FLAGS:
        load_user_directory()
    lines = []
    for kind in ("Models", "HParams", "Problems"):
        names = getattr(registry, f"list_{kind.lower()}")()
        width = max(map(len, names))
        lines.append(f"{kind} ({len(names)}):")
        lines += [f"  {name:{width}}  {registry.summary(name)}".rstrip() for name in names] + [""]
    return "\n".join(lines)


def hparams(needed: bool = True):
    """Returns the settings of --hparams_set and --hparams; None if absent and not needed."""
    spec = ",".join(part for part in (FLAGS.hparams_set, FLAGS.hparams) if part)
    if not spec and needed:
        raise UserError("--hparams is missing: give --hparams=SET, such as transformer_base.")
    return registry.hparams(spec) if spec else None


def typed_lines() -> Iterator[str]:
    """Yields each line of standard input, invalid UTF-8 unchanged; asks for it on a terminal."""
    from t2t_keras.text.lines import iterate_raw_lines

    lines = iterate_raw_lines(None)

    def ask() -> bytes | None:
        print("> " * sys.stdin.isatty(), end="", flush=True)
        return next(lines, None)

    yield from (line.decode("utf-8", "surrogateescape") for line in iter(ask, None))


def valid_text(text: str, name: str) -> str:
    """Returns a text from the terminal without bytes that are not UTF-8, with a warning."""
    valid = text.encode("utf-8", "surrogateescape").decode("utf-8", "ignore")
    if valid != text:
        warn(f"{name} is not UTF-8: invalid bytes are dropped")
    return valid
