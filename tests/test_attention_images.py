"""Pictures of attention, and the file that TensorBoard reads them from."""

import numpy as np
import tensorflow as tf
from networks import small_model
from tensorflow.core.util import event_pb2

from t2t_keras.training.reporting import ATTENTION_PIXELS, EventLog, attention_images

BATCH = {
    "inputs": np.array([[5, 9, 1, 0], [5, 9, 3, 1]], np.int32),
    "targets": np.array([[7, 1, 0], [7, 2, 1]], np.int32),
}


def test_a_picture_of_every_layer_shows_its_weights():
    model = small_model()
    images = attention_images(model, BATCH)
    stacks = {"encoder": (3, 3), "decoder": (2, 2), "encdec": (2, 3)}
    assert set(images) == {f"{kind}/layer_{n}" for kind in stacks for n in range(2)}
    alone = {"inputs": BATCH["inputs"][:1, :3], "targets": BATCH["targets"][:1, :2]}
    _, weights = model(alone, return_attention_weights=True)
    for kind, (queries, keys) in stacks.items():
        image = images[f"{kind}/layer_1"]
        assert image.shape == (queries * ATTENTION_PIXELS, (2 * keys + 1) * ATTENTION_PIXELS, 3)
        cells = image[::ATTENTION_PIXELS, ::ATTENTION_PIXELS, 0].astype(float)
        for head, columns in enumerate((cells[:, :keys], cells[:, keys + 1 :])):
            wanted = 255 * (1 - np.asarray(weights[kind][1])[0, head])
            np.testing.assert_allclose(columns, wanted, atol=1)


def test_packed_rows():
    packed = {}
    for side, ids in BATCH.items():
        packed[side] = ids[1:]
        packed[f"{side}_segmentation"] = np.ones_like(ids[1:])
        packed[f"{side}_position"] = np.arange(ids.shape[1], dtype=np.int32)[None]
    plain = {side: ids[1:] for side, ids in BATCH.items()}
    model = small_model()
    ours, wanted = attention_images(model, packed), attention_images(model, plain)
    assert max(np.abs(ours[name].astype(int) - wanted[name]).max() for name in wanted) <= 1


def test_packed_rows_with_zeros_between():
    ids = np.array([[5, 1, 0, 9, 1, 0]], np.int32)
    packed = {}
    for side in BATCH:
        packed[side] = ids
        packed[f"{side}_segmentation"] = np.array([[1, 1, 0, 2, 2, 0]], np.int32)
        packed[f"{side}_position"] = np.array([[0, 1, 0, 0, 1, 0]], np.int32)
    image = attention_images(small_model(), packed)["encoder/layer_0"]
    assert image.shape == (5 * ATTENTION_PIXELS, (2 * 5 + 1) * ATTENTION_PIXELS, 3)


def test_tensorboard_finds_curves_and_pictures(tmp_path):
    log = EventLog(str(tmp_path))
    image = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    log.write(7, {"loss": 1.5})
    log.write_images(8, {"encoder/layer_0": image})
    log.flush()
    [path] = tmp_path.iterdir()
    records = [event_pb2.Event.FromString(r.numpy()) for r in tf.data.TFRecordDataset(str(path))]
    curve, picture = records[1:]
    assert (curve.step, picture.step) == (7, 8)
    [value] = curve.summary.value
    assert value.metadata.plugin_data.plugin_name == "scalars"
    assert value.metadata.data_class == 1
    assert tf.make_ndarray(value.tensor) == 1.5
    [value] = picture.summary.value
    assert (value.tag, value.metadata.plugin_data.plugin_name) == ("encoder/layer_0", "images")
    assert value.metadata.data_class == 3
    width, height, png = tf.make_ndarray(value.tensor)
    assert (width, height) == (b"3", b"2")
    np.testing.assert_array_equal(tf.io.decode_png(png), image)
