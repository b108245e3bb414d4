"""Dropout: rates, shared decisions, and masks that a trainer supplies."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.layers import Dropout, FeedForward, keep_mask_scope
from t2t_keras.training.train_step import PhiloxKeepMask

ONES = np.ones((40, 50, 60), "float32")


@pytest.mark.parametrize("masks", ["keras", "philox"])
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_rate(rate, masks):
    """Of 120000 decisions the share dropped has a standard deviation of 0.0015 at most."""
    output = np.asarray(dropped(Dropout(rate), masks))
    assert np.mean(output == 0) == pytest.approx(rate, abs=0.006)
    np.testing.assert_allclose(output[output != 0], 1 / (1 - rate), rtol=1e-6)


def dropped(layer, masks, x=ONES, seeds=(1, 2)):
    if masks == "keras":
        return layer(x, training=True)
    with keep_mask_scope(PhiloxKeepMask(tf.constant(seeds, tf.int64))):
        return layer(x, training=True)


@pytest.mark.parametrize("masks", ["keras", "philox"])
@pytest.mark.parametrize("broadcast_dims", [(0,), (1,), (0, 2), (-1,)])
def test_one_decision_along_broadcast_dims(broadcast_dims, masks):
    output = np.asarray(dropped(Dropout(0.5, broadcast_dims=broadcast_dims), masks))
    for axis in range(3):
        same = (output == output.take([0], axis=axis)).all()
        assert same == (axis in broadcast_dims or axis - 3 in broadcast_dims)


def test_nothing_outside_training_or_at_rate_zero():
    np.testing.assert_array_equal(Dropout(0.5)(ONES), ONES)
    np.testing.assert_array_equal(Dropout(0.5)(ONES, training=False), ONES)
    np.testing.assert_array_equal(Dropout(0.0)(ONES, training=True), ONES)


def test_no_mask_is_asked_for_without_training():
    def refuse(shape, rate):
        raise AssertionError

    with keep_mask_scope(refuse):
        FeedForward(filter_size=4, dropout=0.5)(ONES)
        Dropout(0.0)(ONES, training=True)


@pytest.mark.parametrize("masks", ["keras", "philox"])
def test_every_call_site_differs(masks):
    layer = Dropout(0.5)
    if masks == "keras":
        first, second = layer(ONES, training=True), layer(ONES, training=True)
    else:
        with keep_mask_scope(PhiloxKeepMask(tf.constant([1, 2], tf.int64))):
            first, second = layer(ONES, training=True), layer(ONES, training=True)
    agreement = np.mean(np.asarray(first) == np.asarray(second))
    assert agreement == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("seeds", [(1, 3), (2, 2), (1 + (1 << 32), 2), (1, 2 + (1 << 16))])
def test_other_seeds_differ(seeds):
    """The seed, the replica (added at 2^32), the call site and the step (at 2^16)."""
    layer = Dropout(0.5)
    first, second = (np.asarray(dropped(layer, "philox", seeds=s)) for s in ((1, 2), seeds))
    assert np.mean(first == second) == pytest.approx(0.5, abs=0.01)


def test_the_same_seeds_give_the_same_masks_with_and_without_xla():
    layer = Dropout(0.3, broadcast_dims=(1,))

    def twice(seeds, x):
        with keep_mask_scope(PhiloxKeepMask(seeds)):
            return layer(layer(x, training=True), training=True)

    seeds = tf.constant([5, 7], tf.int64)
    eager = twice(seeds, ONES)
    for xla in (False, True):
        compiled = tf.function(twice, jit_compile=xla)(seeds, ONES)
        np.testing.assert_array_equal(compiled, eager)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_keeps_the_dtype(dtype):
    x = keras.ops.ones((3, 4), dtype)
    layer = Dropout(0.5, dtype=dtype)
    assert layer(x, training=True).dtype == dtype
    with keep_mask_scope(PhiloxKeepMask(tf.constant([1, 2], tf.int64))):
        assert layer(x, training=True).dtype == dtype


def test_scopes_nest_and_end():
    keep_all = lambda shape, rate: tf.ones(shape, tf.bool)  # noqa: E731
    keep_none = lambda shape, rate: tf.zeros(shape, tf.bool)  # noqa: E731
    layer = Dropout(0.5)
    with keep_mask_scope(keep_all):
        with keep_mask_scope(keep_none):
            assert np.all(np.asarray(layer(ONES, training=True)) == 0)
        assert np.all(np.asarray(layer(ONES, training=True)) == 2)
    assert len(np.unique(layer(ONES, training=True))) == 2


def test_gradient_flows_where_kept():
    x = tf.constant(ONES[0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = dropped(Dropout(0.5), "philox", x=x)
    np.testing.assert_array_equal(tape.gradient(y, x), y)
