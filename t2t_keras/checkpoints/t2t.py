"""Reading and writing tensor2tensor's checkpoints.

TensorFlow is imported only to read or write files; `assign`, which sets a model's variables from
arrays, works without it on any Keras backend.
"""

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

from t2t_keras.checkpoints.names import is_slot, is_table, is_weight, split_table, t2t_variables
from t2t_keras.errors import UserError, explained, reason_of, warn
from t2t_keras.files import finish_publishing, is_publishing, publish, publish_together
from t2t_keras.transformer import TARGET_SPACES

_TABLE_SHARD = re.compile(r"^(.*/symbol_modality_[^/]+/[^/]+)/weights_(\d+)(/[^/]+)?$")

_SIZES = (  # names of variables, the axis, and the setting that is its size
    ("/ffn/conv1/kernel", 0, "hidden_size"),
    ("/ffn/conv1/kernel", 1, "filter_size"),
    ("/q/kernel", 1, "attention_key_channels"),
    ("/v/kernel", 1, "attention_value_channels"),
    ("s_positional_embedding", 0, "max_length"),
    ("/relative_positions_keys/embeddings", 0, "max_relative_position"),
)

# Hidden ones are unfinished; those of a run begin with "model.ckpt-".
_INDEX = re.compile(r"(?!\.)(?=(?P<own>model\.ckpt-)?)(?P<name>.*-(?P<step>\d+))\.index$")
_OF = "-of-{:05d}"  # how the name of a data file ends, by the number of them
STATE_FILE = "checkpoint"  # TensorFlow's


def read(path: str) -> dict[str, np.ndarray]:
    """Returns the variables of a checkpoint by name, tables joined; a `UserError` if there is none to read."""
    joined = dict(each_variable(path))
    shards: dict[str, dict[int, str]] = {}
    for name in joined:
        if match := _TABLE_SHARD.match(name):
            table = match[1] + (match[3] or "")  # a table or one of its optimizer slots
            shards.setdefault(table, {})[int(match[2])] = name
    for table, names in shards.items():
        pieces = [joined[names[i]] for i in sorted(names)]
        # Pieces that do not form a table stay, so that `assign` lists them in its error.
        if len(pieces) == max(names) + 1 and len({piece.shape[1:] for piece in pieces}) == 1:
            joined[table] = np.concatenate(pieces)
            for name in names.values():
                del joined[name]
    return joined


def each_variable(
    path: str, wanted: Callable[[str], bool] = lambda name: True
) -> Iterator[tuple[str, np.ndarray]]:
    """Yields names and values with one variable in memory at a time; errors as of `read`."""
    with reading(path) as reader:
        for name in sorted(reader.get_variable_to_shape_map()):
            if wanted(name):
                yield name, reader.get_tensor(name)


@contextlib.contextmanager
def reading(path: str) -> Iterator[Any]:
    """Yields TensorFlow's reader of a checkpoint, whose errors become a `UserError`."""
    import tensorflow as tf

    prefix = resolve(path)
    kinds = (tf.errors.OpError, ValueError, RuntimeError, IndexError)  # of a truncated file
    with explained(f"checkpoint {prefix} cannot be read", *kinds), contextlib.ExitStack() as stack:
        plain = prefix  # unless the reader would take it for a pattern, or for a directory
        if glob.has_magic(prefix) or "\\" in prefix or os.path.isdir(prefix):
            plain = f"{stack.enter_context(tempfile.TemporaryDirectory())}/checkpoint"
            for file in glob.glob(glob.escape(prefix) + ".*"):
                os.symlink(os.path.abspath(file), plain + file[len(prefix) :])
        yield tf.train.load_checkpoint(plain)


def is_whole(prefix: str) -> bool:
    """Returns True if every variable of a checkpoint can be read.

    The checksums of all variables are compared, which detects truncated and missing files and every
    changed bit. It takes half a second per gigabyte, and memory for one variable.
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


def resolve(path: str) -> str:
    """Returns the checkpoint prefix that `path` names.

    It is a prefix, an index file, or a directory, which stands for the checkpoint that its `checkpoint`
    file names, or else the one with the highest step.
    """
    path = os.fspath(path).removesuffix(".index")
    finish_publishing(path if os.path.isdir(path) else os.path.dirname(path))
    if os.path.exists(path + ".index"):
        return path
    if not os.path.isdir(path):
        hint = " (of a .keras file, t2t-keras-convert makes one)" * path.endswith(".keras")
        raise UserError(f"no checkpoint at {path}: expected {path}.index, or a directory{hint}.")
    found, state_file = checkpoints_in(path), os.path.join(path, STATE_FILE)
    if os.path.exists(state_file):
        import tensorflow as tf

        try:
            # Not `latest_checkpoint`, which treats the directory as a pattern.
            state = tf.train.get_checkpoint_state(path)
        except ValueError:  # it is empty, or not UTF-8
            state = None
        if state is None:
            raise UserError(f"{state_file} names no checkpoint: remove it to use the highest step.")
        if os.path.exists(state.model_checkpoint_path + ".index"):
            return state.model_checkpoint_path
        name = os.path.basename(state.model_checkpoint_path)
        if found and name != os.path.basename(found[-1]):
            warn(f"{name}, which {state_file} names, is not there: {found[-1]} is read")
    if not found:
        raise UserError(f"no checkpoint in directory {path}: train first, or name another.")
    return found[-1]


def checkpoints_in(directory: str, start: str = "") -> list[str]:
    """Returns the prefixes of the checkpoints `<start>...-<step>` in a directory, by step; a run's own last."""
    found = (_INDEX.match(name) for name in os.listdir(directory) if name.startswith(start))
    by_step = sorted((int(m["step"]), m["own"] or "", m["name"]) for m in found if m)
    return [os.path.join(directory, name) for *_, name in by_step]


def step_in_name(prefix: str) -> int:
    """Returns the step that a name such as `dir/model.ckpt-1000` ends in; 0 without one."""
    digits = re.search(r"-(\d+)$", prefix)
    return int(digits[1]) if digits else 0


def write(path: str, arrays: Mapping[str, Any], beside: Mapping[str, str] = {}) -> None:
    """Writes variables by name, atomically: a reader finds the old or the complete new checkpoint.

    The files are `path.index` and `path.data-00000-of-00001`, as in tensor2tensor. Only if a checkpoint
    is replaced, there are two or three data files: they need new names, because the old index refers to
    the old ones until the new index replaces it. `beside` are the files, name -> text, of the directory
    that are replaced together with the checkpoint; an empty text removes the file.
    """
    import tensorflow as tf

    directory, name = os.path.split(path)
    directory = directory or "."
    leftovers = os.path.join(directory, f".{name}.unfinished")
    unfinished = f"{leftovers}.{platform.node()}.{os.getpid()}"
    try:
        os.makedirs(directory, exist_ok=True)
        old = _data_files(path)
        count = 1
        while os.path.exists(path + ".index") and any(f.endswith(_OF.format(count)) for f in old):
            count += 1
        parts = [f"{unfinished}-{number}" for number in range(min(count, len(arrays)))]
        for number, part in enumerate(parts):
            own = sorted(arrays)[number :: len(parts)]
            tensors = [tf.convert_to_tensor(arrays[each]) for each in own]
            tf.raw_ops.SaveV2(
                prefix=part, tensor_names=own, shape_and_slices=[""] * len(own), tensors=tensors
            )
        tf.raw_ops.MergeV2Checkpoints(
            checkpoint_prefixes=parts, destination_prefix=unfinished, delete_old_dirs=False
        )
        ending = _OF.format(len(parts))
        data = [file for file in _data_files(unfinished) if file.endswith(ending)]
        index = unfinished + ".index"  # comes last: it makes the data files a checkpoint
        written = data if beside else [*data, index]
        publish({Path(file): Path(path + file.removeprefix(unfinished)) for file in written})
        if beside:
            partial = os.path.basename(index)
            names = {f"{name}.index": partial}
            for other, text in beside.items():
                names[other] = f"{partial}.{other}" if text else ""
                if text:
                    Path(f"{index}.{other}").write_text(text, "utf-8")
            publish_together(Path(directory), names)
        for file in old:
            if not file.endswith(ending):
                os.remove(file)
    except (OSError, tf.errors.OpError) as error:
        raise UserError(f"checkpoint {path} cannot be written: {reason_of(error)}.") from error
    finally:
        if not is_publishing(directory):
            for file in glob.glob(glob.escape(leftovers) + "*"):
                os.remove(file)


def _data_files(prefix: str) -> list[str]:
    return sorted(glob.glob(glob.escape(prefix) + ".data-*-of-*"))


def state_text(names: Sequence[str]) -> str:
    """Returns the text of TensorFlow's file `checkpoint` for these checkpoints, oldest first."""
    lines = [f"model_checkpoint_path: {json.dumps(names[-1])}"]
    lines += [f"all_model_checkpoint_paths: {json.dumps(name)}" for name in names]
    return "\n".join(lines) + "\n"


def load_t2t(model, path: str) -> int:
    """Loads a tensor2tensor checkpoint into a `Transformer`; returns its `global_step`, else 0.

    Args:
        model: the model; its settings must describe the network of the checkpoint.
        path: prefix such as `dir/model.ckpt-250000`, or a directory (its latest checkpoint).

    Raises:
        UserError: one message with every variable that is missing, extra or of another shape.
            Optimizer slots, `global_step` and statistics are ignored.
    """
    arrays = read(path)
    assign(model, with_averages(arrays), path)
    return int(arrays.get("global_step", 0))


def with_averages(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns arrays in which the weights of a run with `--ema` are their moving averages."""
    averages = {}
    if arrays.get("engine/ema_updates", 0) > 0:
        found = {name: re.fullmatch("engine/(.*)/ema", name) for name in arrays}
        averages = {match[1]: arrays[name] for name, match in found.items() if match}
    return {**arrays, **averages}


def require_sizes(hp, sizes: Sequence[tuple], arrays: Mapping[str, np.ndarray], path: str) -> None:
    """Raises UserError if settings imply larger parts than a checkpoint has, before they take all memory.

    `sizes` are further names, implied sizes and those of the checkpoint.
    """
    parts = [
        (setting, getattr(hp, setting), array.shape[axis])
        for end, axis, setting in _SIZES
        for name, array in arrays.items()
        if name.endswith(end) and array.ndim == 2
    ]
    for side in ("encoder", "decoder"):
        setting = f"num_{side}_layers"
        layers = sorted(map(int, re.findall(rf"/body/{side}/layer_(\d+)/", "\n".join(arrays))))
        implied = getattr(hp, setting) or hp.num_hidden_layers
        parts += [(f"{setting} (num_hidden_layers if 0)", implied, 1 + n) for n in layers[-1:]]
    for setting, value, found in [*sizes, *parts]:
        if value > found:
            raise UserError(
                f"checkpoint {path} does not fit the settings: {setting} is {found:,} there and {value:,} "
                "here. Use the settings, --model and vocabulary that it was trained with."
            )


def assign(model, arrays: Mapping[str, np.ndarray], source: str) -> None:
    """Sets the model's variables from arrays by T2T's names; see `load_t2t`."""
    named = t2t_variables(model)
    extra = arrays.keys() - named.keys()
    found = {
        "missing": sorted(named.keys() - arrays.keys()),
        "not in this model": sorted(name for name in extra if is_weight(name, arrays)),
        "of another shape": [
            f"{name} is {list(arrays[name].shape)} there and {list(named[name].shape)} here"
            for name in sorted(named.keys() & arrays.keys())
            if tuple(arrays[name].shape) != tuple(named[name].shape)
        ],
    }
    if problems := [f"{label}: {', '.join(names)}" for label, names in found.items() if names]:
        raise UserError(
            f"checkpoint {source} does not fit the model ({'; '.join(problems)}). "
            "Use the settings, --model and vocabulary that it was trained with."
        )
    for name, variable in named.items():
        variable.assign(arrays[name])
    spaces = trained_spaces(arrays)
    if model.has_target_space and spaces and model.target_space_id not in spaces:
        warn(
            f"{source} was trained with target_space_id={', '.join(map(str, spaces))}, but "
            f"{model.target_space_id} is used: give that"
        )


def trained_spaces(arrays: Mapping[str, np.ndarray]) -> list[int]:
    """Returns the rows of the target-space table that training has changed, as far as it shows.

    It shows in the optimizer's slots, else in values far larger than those that most rows begin with.
    """
    tables = [name for name in arrays if "/target_space_embedding/kernel" in name]
    tables = [name for name in tables if len(arrays[name]) == TARGET_SPACES]
    if not tables:
        return []
    table = arrays[min(tables, key=lambda name: (not is_slot(name), name))]
    largest = np.abs(table.reshape(TARGET_SPACES, -1)).max(1)
    return np.flatnonzero(largest > 2 * np.median(largest)).tolist()


def save_t2t(model, path: str, extra: Mapping[str, Any] | None = None) -> None:
    """Writes a `Transformer` as a tensor2tensor checkpoint, such as `dir/model.ckpt-0`.

    `extra` are further arrays by name, for instance `global_step`. Slots of a table (whose name
    contains `/symbol_modality_`) must already be split into shards.
    """
    if os.path.isdir(path):
        raise UserError(f"{path} is a directory: name a checkpoint in it, such as model.ckpt-0.")
    write(os.fspath(path), {**model_arrays(model), **(extra or {})})


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
