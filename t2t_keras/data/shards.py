"""TFRecord shards as T2T names and writes them, so that either program reads the other's.

`{name}-{split}-00000-of-00100` holds serialised `tf.Example`s with int64 lists, one a sentence pair.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from t2t_keras.errors import UserError

if TYPE_CHECKING:
    import tensorflow as tf

Example = Mapping[str, Sequence[int]]

READ_BUFFER = 2**20
_COUNTED_AT_ONCE = 4096


def shard_paths(data_dir: str | os.PathLike, name: str, split: str, shards: int) -> list[Path]:
    """Returns the final paths of all shards of a split."""
    return [
        Path(data_dir) / f"{name}-{split}-{number:05d}-of-{shards:05d}" for number in range(shards)
    ]


def find_shards(data_dir: str | os.PathLike, name: str, split: str) -> list[Path]:
    """Returns the shards of a split that lie in `data_dir`, in order.

    Raises:
        UserError: there are none, some are missing, or there are sets of several sizes.
    """
    pattern = re.compile(rf"{re.escape(name)}-{re.escape(split)}-(\d{{5}})-of-(\d{{5}})")
    directory = Path(data_dir)
    found = sorted(directory.iterdir()) if directory.is_dir() else []
    shards = {path: match for path in found if (match := pattern.fullmatch(path.name))}
    if not shards:
        raise UserError(
            f"{data_dir} holds no {split} data of {name}: "
            f"run t2t-keras-datagen --problem={name} --data_dir={data_dir} first."
        )
    totals = sorted({int(match[2]) for match in shards.values()})
    if len(totals) > 1:
        raise UserError(
            f"{data_dir} holds {split} data of {name} in sets of {' and of '.join(map(str, totals))} "
            "shards; only one set is allowed: delete the other."
        )
    wanted = shard_paths(data_dir, name, split, totals[0])
    missing = [path.name for path in wanted if path not in shards]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise UserError(
            f"{data_dir} lacks {missing[0]}{more}, of {totals[0]} shards: copy what is missing, "
            f"or delete {name}-{split}-* and run t2t-keras-datagen --problem={name} again."
        )
    return wanted


def write_shards(examples: Iterable[Example], paths: Sequence[Path], seed: int) -> int:
    """Deals examples round robin to shards, shuffles each, and gives them their names at the end.

    While it runs, files are called `{name}-unshuffled-...` (T2T) or end in `.incomplete`: whatever
    bears a final name is whole.

    Args:
        examples: lists of ids by feature name.
        paths: the final path of each shard.
        seed: of the shuffle within shards.

    Returns:
        The number of examples.

    Raises:
        UserError: there is no example, or one has an empty field.
    """
    import tensorflow as tf

    dealt = [_unshuffled(path) for path in paths]
    shuffled = [path.with_name(path.name + ".incomplete") for path in paths]
    try:
        count = _deal(examples, dealt)
        for source, target, path in zip(dealt, shuffled, paths, strict=True):
            _shuffle(source, target, random.Random(f"{seed} {path.name}"))
            source.unlink()
        for source, path in zip(shuffled, paths, strict=True):
            source.rename(path)
    except (OSError, tf.errors.OpError) as error:
        raise UserError(f"The shards of {paths[0]} cannot be written: {error}") from error
    finally:
        for leftover in [*dealt, *shuffled]:
            leftover.unlink(missing_ok=True)
    return count


def to_example(features: Example, number: int) -> tf.train.Example:
    """Returns a `tf.train.Example` of int64 lists; `number` (from 1) is told when it is bad.

    Raises:
        UserError: a field is empty or holds something else than integers.
    """
    import tensorflow as tf

    if not features:
        raise UserError(f"Example {number} has no fields.")
    for field, ids in features.items():
        if len(ids) == 0:
            raise UserError(
                f"Example {number} has an empty field {field!r}; every field needs at least one id."
            )
    try:
        lists = {
            field: tf.train.Feature(int64_list=tf.train.Int64List(value=ids))
            for field, ids in features.items()
        }
    except (TypeError, ValueError) as error:
        raise UserError(
            f"Example {number} holds something else than 64-bit integers: {error}"
        ) from error
    return tf.train.Example(features=tf.train.Features(feature=lists))


def count_examples(paths: Sequence[Path]) -> int:
    """Returns the number of records in shards, after reading all of each with its checksums.

    Raises:
        UserError: a shard cannot be read to its end; it is named.
    """
    import tensorflow as tf

    records = tf.data.TFRecordDataset([str(path) for path in paths], buffer_size=READ_BUFFER)
    try:
        return sum(int(tf.size(batch)) for batch in records.batch(_COUNTED_AT_ONCE))
    except tf.errors.OpError as error:
        if len(paths) == 1:
            raise _unreadable(paths[0], error) from None
    return sum(count_examples([path]) for path in paths)


def read_records(path: Path) -> Iterator[bytes]:
    """Yields the serialised examples of a shard.

    Raises:
        UserError: the shard cannot be read to its end.
    """
    import tensorflow as tf

    try:
        yield from tf.data.TFRecordDataset(str(path), buffer_size=READ_BUFFER).as_numpy_iterator()
    except tf.errors.OpError as error:
        raise _unreadable(path, error) from None


def _deal(examples: Iterable[Example], paths: Sequence[Path]) -> int:
    """Writes example i to file i modulo their number."""
    import tensorflow as tf

    number = 0
    with ExitStack() as stack:
        writers = [stack.enter_context(tf.io.TFRecordWriter(str(path))) for path in paths]
        for number, features in enumerate(examples, start=1):
            record = to_example(features, number).SerializeToString(deterministic=True)
            writers[(number - 1) % len(writers)].write(record)
    if not number:
        raise UserError(f"There is no example to write to {paths[0].parent}: the source is empty.")
    return number


def _shuffle(source: Path, target: Path, generator: random.Random) -> None:
    import tensorflow as tf

    records = list(read_records(source))
    generator.shuffle(records)
    with tf.io.TFRecordWriter(str(target)) as writer:
        for record in records:
            writer.write(record)


def _unshuffled(path: Path) -> Path:
    """`a-train-00000-of-00010` -> `a-unshuffled-train-00000-of-00010.incomplete`."""
    name, split, number, of, total = path.name.rsplit("-", 4)
    return path.with_name(f"{name}-unshuffled-{split}-{number}-{of}-{total}.incomplete")


def _unreadable(path: Path, error: tf.errors.OpError) -> UserError:
    import tensorflow as tf

    if isinstance(error, tf.errors.DataLossError):
        what = "is truncated or corrupt"
    else:
        what = "cannot be read"
    reason = str(error.message).split(" [Op:")[0].split("{{node")[-1].splitlines()[0]
    return UserError(
        f"The shard {path} {what} ({reason}): "
        "copy it again, or delete the shards of its split and run t2t-keras-datagen again."
    )
