"""Reading and writing tensor2tensor's checkpoints.

TensorFlow is imported only to read or write files; `assign`, which sets a model's variables from
arrays, works without it on any Keras backend.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import platform
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from t2t_keras.checkpoints.names import is_table, is_weight, split_table, t2t_variables
from t2t_keras.errors import UserError
from t2t_keras.files import finish_publishing, is_publishing, publish, publish_together, write_text

_TABLE_SHARD = re.compile(r"^(.*/symbol_modality_[^/]+/[^/]+)/weights_(\d+)(/[^/]+)?$")

_INDEX = re.compile(r"(?P<name>(?!\.).*-(?P<step>\d+))\.index$")  # hidden ones are unfinished


def read(path: str) -> dict[str, np.ndarray]:
    """Reads all variables of a checkpoint, with joined embedding tables; see `read_variables`."""
    return _join_tables(read_variables(path))


def read_variables(path: str) -> dict[str, np.ndarray]:
    """Reads all variables of a checkpoint by name.

    Raises:
        UserError: there is no readable checkpoint.
    """
    return dict(each_variable(path))


def each_variable(
    path: str, wanted: Callable[[str], bool] = lambda name: True
) -> Iterator[tuple[str, np.ndarray]]:
    """Yields names and values with one variable in memory at a time; see `read_variables`."""
    import tensorflow as tf

    prefix = resolve(path)
    with _reading(prefix) as plain:
        reader = tf.train.load_checkpoint(plain)
        for name in sorted(reader.get_variable_to_shape_map()):
            if wanted(name):
                yield name, reader.get_tensor(name)


def variable_shapes(path: str) -> dict[str, list[int]]:
    """Returns the shapes of all variables of a checkpoint by name, without reading values."""
    import tensorflow as tf

    prefix = resolve(path)
    with _reading(prefix) as plain:
        return tf.train.load_checkpoint(plain).get_variable_to_shape_map()


def is_whole(prefix: str) -> bool:
    """Returns True if every variable of a checkpoint can be read.

    It reads all bytes and compares the checksum of each variable, which detects files that are
    truncated, missing or changed in a single bit. It takes about half a second per gigabyte, and
    memory for one variable.
    """
    try:
        require_whole(prefix)
    except UserError:
        return False
    return True


def require_whole(prefix: str) -> None:
    """Raises a `UserError` with the reason if a checkpoint is not whole; see `is_whole`."""
    for _ in each_variable(prefix):
        pass


@contextlib.contextmanager
def _reading(prefix: str) -> Iterator[str]:
    """Yields a path for TensorFlow's reader, which treats `[`, `*`, `?` and `\\` as a pattern."""
    import tensorflow as tf

    try:
        with contextlib.ExitStack() as stack:
            if glob.has_magic(prefix) or "\\" in prefix:
                links = stack.enter_context(tempfile.TemporaryDirectory())
                for path in glob.glob(glob.escape(prefix) + ".*"):
                    os.symlink(os.path.abspath(path), f"{links}/checkpoint{path[len(prefix) :]}")
                yield f"{links}/checkpoint"
            else:
                yield prefix
    except (tf.errors.OpError, ValueError, RuntimeError, IndexError) as error:
        # (A truncated data file raises IndexError.)
        reason = str(error).split("\n", 1)[0]
        raise UserError(f"checkpoint {prefix} cannot be read: {reason}") from error


def resolve(path: str) -> str:
    """Returns the checkpoint prefix that `path` names.

    Args:
        path: a prefix, an index file, or a directory, which stands for the checkpoint that its
            `checkpoint` file names, or else the one with the highest step.
    """
    path = path.removesuffix(".index")
    finish_publishing(path if os.path.isdir(path) else os.path.dirname(path))
    if os.path.exists(path + ".index"):
        return path
    if os.path.isdir(path):
        latest = _latest(path)
        if os.path.exists(latest + ".index"):
            return latest
        if found := checkpoints_in(path):
            return found[-1]
        raise UserError(f"no checkpoint in directory {path}: train first, or name another.")
    raise UserError(f"no checkpoint at {path}: expected {path}.index, or a directory of them.")


def _latest(directory: str) -> str:
    """Returns the prefix that the file `checkpoint` names; "" without such a file."""
    import tensorflow as tf

    path = os.path.join(directory, STATE_FILE)
    if not os.path.exists(path):
        return ""
    try:
        # Not `latest_checkpoint`, which treats the directory as a pattern.
        state = tf.train.get_checkpoint_state(directory)
    except ValueError:  # it is empty, or not UTF-8
        state = None
    if state is None:
        raise UserError(
            f"{path} names no checkpoint: remove it to use the checkpoint with the highest step."
        )
    return state.model_checkpoint_path


def checkpoints_in(directory: str, start: str = "") -> list[str]:
    """Returns the prefixes of the checkpoints `<start>...-<step>` in a directory, sorted by step."""
    found = (_INDEX.match(name) for name in os.listdir(directory) if name.startswith(start))
    by_step = sorted((int(match["step"]), match["name"]) for match in found if match)
    return [os.path.join(directory, name) for _, name in by_step]


def step_in_name(prefix: str) -> int:
    """Returns the step that a name such as `dir/model.ckpt-1000` ends in; 0 without one."""
    digits = re.search(r"-(\d+)$", prefix)
    return int(digits[1]) if digits else 0


def write(path: str, arrays: Mapping[str, Any], beside: Mapping[str, str] = {}) -> None:
    """Writes variables by name, atomically: a reader finds the old or the complete new checkpoint.

    The files are `path.index` and `path.data-00000-of-00001`, as in tensor2tensor. Only if a checkpoint
    is replaced, there are two or three data files: they need new names, because the old index refers to
    the old ones until the new index replaces it.

    Args:
        path: prefix of the checkpoint.
        arrays: the variables.
        beside: name -> text of files in the same directory that are replaced together with the
            checkpoint; an empty text removes the file.
    """
    import tensorflow as tf

    directory = os.path.dirname(path) or "."
    name = os.path.basename(path)
    leftovers = os.path.join(directory, f".{name}.unfinished")
    unfinished = f"{leftovers}.{platform.node()}.{os.getpid()}"
    try:
        os.makedirs(directory, exist_ok=True)
        old = _data_files(path)
        count = 1
        while os.path.exists(path + ".index") and any(_is_of(count, file) for file in old):
            count += 1
        parts = [f"{unfinished}-{number}" for number in range(min(count, len(arrays)))]
        for number, part in enumerate(parts):
            names = sorted(arrays)[number :: len(parts)]
            tf.raw_ops.SaveV2(
                prefix=part,
                tensor_names=names,
                shape_and_slices=[""] * len(names),
                tensors=[tf.convert_to_tensor(arrays[name]) for name in names],
            )
        tf.raw_ops.MergeV2Checkpoints(
            checkpoint_prefixes=parts, destination_prefix=unfinished, delete_old_dirs=False
        )
        data = [file for file in _data_files(unfinished) if _is_of(len(parts), file)]
        index = unfinished + ".index"  # comes last: it makes the data files a checkpoint
        written = data if beside else [*data, index]
        publish({Path(file): Path(path + file.removeprefix(unfinished)) for file in written})
        if beside:
            _publish_with(index, f"{name}.index", beside)
        for file in old:
            if not _is_of(len(parts), file):
                os.remove(file)
    except (OSError, tf.errors.OpError) as error:
        reason = str(error).split("\n", 1)[0]
        raise UserError(f"checkpoint {path} cannot be written: {reason}") from error
    finally:
        if not is_publishing(directory):
            for file in glob.glob(glob.escape(leftovers) + "*"):
                os.remove(file)


def _publish_with(index: str, name: str, beside: Mapping[str, str]) -> None:
    """Publishes a finished index together with the files beside it."""
    names = {name: os.path.basename(index)}
    for other, text in beside.items():
        partial = Path(f"{index}.{other}")
        names[other] = partial.name if text else ""
        if text:
            partial.write_text(text, "utf-8")
    publish_together(Path(index).parent, names)


def _data_files(prefix: str) -> list[str]:
    return sorted(glob.glob(glob.escape(prefix) + ".data-*-of-*"))


def _is_of(parts: int, data_file: str) -> bool:
    """Returns True if a data file belongs to a checkpoint of this many parts."""
    return data_file.endswith(f"-of-{parts:05d}")


STATE_FILE = "checkpoint"  # TensorFlow's


def write_state(directory: str, names: Sequence[str]) -> None:
    """Writes the file `checkpoint`; see `state_text`."""
    write_text(Path(directory) / STATE_FILE, state_text(names))


def state_text(names: Sequence[str]) -> str:
    """Returns the text of TensorFlow's file `checkpoint`.

    Args:
        names: names of the checkpoints in the directory, oldest first.
    """
    lines = [f"model_checkpoint_path: {json.dumps(names[-1])}"]
    lines += [f"all_model_checkpoint_paths: {json.dumps(name)}" for name in names]
    return "\n".join(lines) + "\n"


def load_t2t(model, path: str) -> int:
    """Loads a tensor2tensor checkpoint into a `Transformer`.

    Args:
        model: the model; its settings must describe the network of the checkpoint.
        path: prefix such as `dir/model.ckpt-250000`, or a directory (its latest checkpoint).

    Returns:
        The checkpoint's `global_step`, 0 if it has none.

    Raises:
        UserError: one message with every variable that is missing, extra or of another shape.
            Optimizer slots, `global_step` and statistics are ignored.
    """
    arrays = read(path)
    assign(model, arrays, path)
    return int(arrays.get("global_step", 0))


def assign(model, arrays: Mapping[str, np.ndarray], source: str) -> None:
    """Sets the model's variables from arrays by T2T's names; see `load_t2t`."""
    named = t2t_variables(model)
    missing = sorted(name for name in named if name not in arrays)
    extra = sorted(name for name in arrays if name not in named and is_weight(name, arrays))
    misshapen = [
        f"{name} is {list(arrays[name].shape)} there and {list(variable.shape)} here"
        for name, variable in sorted(named.items())
        if name in arrays and tuple(arrays[name].shape) != tuple(variable.shape)
    ]
    problems = [
        f"{label}: {', '.join(names)}"
        for label, names in (
            ("missing", missing),
            ("not in this model", extra),
            ("of another shape", misshapen),
        )
        if names
    ]
    if problems:
        raise UserError(
            f"checkpoint {source} does not fit the model ({'; '.join(problems)}). "
            "Use the settings and vocabulary that it was trained with."
        )
    for name, variable in named.items():
        variable.assign(arrays[name])


def save_t2t(model, path: str, extra: Mapping[str, Any] | None = None) -> None:
    """Writes a `Transformer` as a tensor2tensor checkpoint.

    Args:
        model: the model.
        path: prefix such as `dir/model.ckpt-0`.
        extra: further arrays by name, for instance `global_step`. Slots of a table (whose name
            contains `/symbol_modality_`) must already be split into shards.
    """
    write(path, {**model_arrays(model), **(extra or {})})


def model_arrays(model) -> dict[str, np.ndarray]:
    """Returns the model's variables by their names in a T2T checkpoint, with split tables."""
    arrays: dict[str, np.ndarray] = {}
    for name, variable in t2t_variables(model).items():
        value = np.asarray(variable)
        if is_table(name):
            arrays.update(split_table(name, value, model.hp.symbol_modality_num_shards))
        else:
            arrays[name] = value
    return arrays


def _join_tables(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    joined = dict(arrays)
    shards: dict[str, dict[int, str]] = {}
    for name in arrays:
        match = _TABLE_SHARD.match(name)
        if match:
            table = match[1] + (match[3] or "")  # a table or one of its optimizer slots
            shards.setdefault(table, {})[int(match[2])] = name
    for table, names in shards.items():
        pieces = [arrays[names[i]] for i in sorted(names)]
        # Pieces that do not form a table stay, so that `assign` lists them in its error.
        if len(pieces) == max(names) + 1 and len({piece.shape[1:] for piece in pieces}) == 1:
            joined[table] = np.concatenate(pieces)
            for name in names.values():
                del joined[name]
    return joined
