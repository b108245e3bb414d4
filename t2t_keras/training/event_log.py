"""Curves and pictures for TensorBoard, written without needing TensorBoard installed."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

# SummaryMetadata(plugin_data=PluginData(plugin_name="scalars"), data_class=DATA_CLASS_SCALAR)
_SCALAR = b"\n\x09\n\x07scalars\x20\x01"
# The same of "images" and DATA_CLASS_BLOB_SEQUENCE
_IMAGE = b"\n\x08\n\x06images\x20\x03"


class EventLog:
    """Writes what has a name and a step to an event file in a directory; without one, nowhere."""

    def __init__(self, directory: str | None):
        self._writer = (
            tf.summary.create_file_writer(directory)
            if directory is not None
            else tf.summary.create_noop_writer()
        )

    def write(self, step: int, values: dict[str, float]) -> None:
        """Writes points of curves."""
        with self._writer.as_default(step):
            for name, value in values.items():
                tf.summary.write(name, tf.constant(value, tf.float32), metadata=_SCALAR)

    def write_images(self, step: int, images: dict[str, np.ndarray]) -> None:
        """Writes pictures, [height, width, 3] uint8 each."""
        with self._writer.as_default(step):
            for name, image in images.items():
                height, width, _ = image.shape
                sizes = [str(width).encode(), str(height).encode()]
                png = tf.io.encode_png(image)
                tf.summary.write(name, tf.stack([*sizes, png]), metadata=_IMAGE)

    def flush(self) -> None:
        self._writer.flush()
