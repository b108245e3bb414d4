"""What a function of a batch sees of it."""

import pytest
import tensorflow as tf

from t2t_keras.training.batch_function import batch_function


def shapes_seen(batch, jit_compile):
    def shapes(batch):
        return {name: tf.shape(ids) for name, ids in batch.items()}

    found = batch_function(shapes, jit_compile=jit_compile)(batch)
    return {name: tuple(shape.numpy()) for name, shape in found.items()}


PACKED = {
    "inputs": tf.constant([[7, 1, 0, 9, 0, 0], [8, 0, 0, 0, 0, 0]]),
    "inputs_position": tf.constant([[0, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]]),
    "targets": tf.constant([[7, 1, 4, 5, 1, 0], [8, 0, 0, 0, 0, 0]]),
}


@pytest.mark.parametrize("jit_compile", [None, False])
def test_columns_that_are_all_padding_are_left_out(jit_compile):
    expected = {"inputs": (2, 4), "inputs_position": (2, 4), "targets": (2, 5)}
    assert shapes_seen(PACKED, jit_compile) == expected


def test_programs_of_xla_see_the_few_shapes_that_there_are():
    assert set(shapes_seen(PACKED, True).values()) == {(2, 6)}


def test_a_batch_without_any_id_keeps_a_column():
    batch = {side: tf.zeros([3, 8], tf.int32) for side in ("inputs", "targets")}
    assert set(shapes_seen(batch, None).values()) == {(3, 1)}
