"""Scalars for TensorBoard, written without needing TensorBoard installed."""

from __future__ import annotations

import tensorflow as tf

# SummaryMetadata(plugin_data=PluginData(plugin_name="scalars"), data_class=DATA_CLASS_SCALAR)
_SCALAR = b"\n\x09\n\x07scalars\x20\x01"


class ScalarLog:
    """Writes named numbers by step to an event file in a directory; without one, nowhere."""

    def __init__(self, directory: str | None):
        self._writer = (
            tf.summary.create_file_writer(directory)
            if directory is not None
            else tf.summary.create_noop_writer()
        )

    def write(self, step: int, values: dict[str, float]) -> None:
        with self._writer.as_default(step):
            for name, value in values.items():
                tf.summary.write(name, tf.constant(value, tf.float32), metadata=_SCALAR)

    def flush(self) -> None:
        self._writer.flush()
