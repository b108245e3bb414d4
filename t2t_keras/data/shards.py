"""TFRecord shards as T2T names them, so that either program reads the other's.

`{name}-{split}-00000-of-00100` holds serialised `tf.Example`s with int64 lists, one a sentence pair.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from t2t_keras.errors import UserError

if TYPE_CHECKING:
    import tensorflow as tf

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
