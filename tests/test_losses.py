"""The loss against its plain formula in float64, its gradient against differences."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras import losses, shape
from t2t_keras.losses import joined_cross_entropy, padded_cross_entropy, token_accuracy

LOGITS = 3 * np.random.default_rng(0).normal(size=(3, 4, 7)).astype("float32")
LABELS = np.array([[3, 1, 6, 1], [5, 1, 0, 0], [0, 0, 0, 0]], "int32")


def plain(logits, labels, label_smoothing):
    """Returns the cross-entropy with soft targets minus their entropy: T2T's formula, written out."""
    logits = np.asarray(logits, np.float64)
    vocab_size = logits.shape[-1]
    confidence, low = 1 - label_smoothing, label_smoothing / (vocab_size - 1)
    soft = np.full(logits.shape, low)
    np.put_along_axis(soft, labels[..., None], confidence, axis=-1)
    log_p = logits - np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1, keepdims=True))
    log_p -= logits.max(-1, keepdims=True)
    entropy = -(confidence * np.log(confidence) + (vocab_size - 1) * low * np.log(low + 1e-20))
    losses = -(soft * log_p).sum(-1) - entropy
    weights = labels != 0
    return (losses * weights).sum(), weights.sum()


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 0.5])
def test_equals_the_plain_formula(label_smoothing):
    numerator, denominator = padded_cross_entropy(LOGITS, LABELS, label_smoothing)
    wanted, tokens = plain(LOGITS, LABELS, label_smoothing)
    assert numerator.dtype == denominator.dtype == "float32"
    assert float(numerator) == pytest.approx(wanted, rel=1e-5)
    assert float(denominator) == tokens == 6


def test_by_hand():
    """Equal logits over 4 tokens cost log 4, and with smoothing 0.2 less the target's entropy."""
    logits, labels = np.zeros((1, 1, 4), "float32"), np.array([[2]])
    assert float(padded_cross_entropy(logits, labels)[0]) == pytest.approx(np.log(4))
    entropy = -(0.8 * np.log(0.8) + 0.2 * np.log(0.2 / 3))
    smoothed = float(padded_cross_entropy(logits, labels, 0.2)[0])
    assert smoothed == pytest.approx(np.log(4) - entropy, rel=1e-5)
    soft = np.log([[[0.02, 0.02, 0.9, 0.02, 0.02, 0.02]]]).astype("float32")  # the best there is
    assert float(padded_cross_entropy(soft, [[2]], 0.1)[0]) == pytest.approx(0, abs=1e-6)


def loss_and_gradient(logits, label_smoothing=0.1):
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss, _ = padded_cross_entropy(logits, LABELS, label_smoothing)
        scaled = 2.5 * loss
    return loss, tape.gradient(scaled, logits)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_gradient_equals_differences(label_smoothing):
    gradient = loss_and_gradient(tf.constant(LOGITS), label_smoothing)[1].numpy()
    differences = np.zeros(LOGITS.shape)
    for index in np.ndindex(LOGITS.shape):
        step = np.zeros(LOGITS.shape)
        step[index] = 1e-4
        above, below = (plain(LOGITS + s * step, LABELS, label_smoothing)[0] for s in (1, -1))
        differences[index] = 2.5 * (above - below) / 2e-4
    np.testing.assert_allclose(gradient, differences, atol=2e-6)
    assert (gradient[LABELS == 0] == 0).all()


def test_logits_that_exp_cannot_hold():
    logits = tf.constant(1e4 * LOGITS)
    loss, gradient = loss_and_gradient(logits)
    assert float(loss) == pytest.approx(plain(logits, LABELS, 0.1)[0], rel=1e-5)
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_logits_are_summed_in_float32(dtype):
    half = tf.cast(LOGITS, dtype)
    numerator, denominator = padded_cross_entropy(half, LABELS, 0.1)
    wanted, _ = plain(tf.cast(half, "float32").numpy(), LABELS, 0.1)
    assert numerator.dtype == denominator.dtype == "float32"
    assert float(numerator) == pytest.approx(wanted, rel=1e-5)
    assert loss_and_gradient(half)[1].dtype == dtype


def test_labels_of_either_int():
    ours = padded_cross_entropy(LOGITS, tf.constant(LABELS, "int64"), 0.1)
    np.testing.assert_array_equal(ours, padded_cross_entropy(LOGITS, LABELS, 0.1))
    ours = token_accuracy(LOGITS, tf.constant(LABELS, "int64"))
    np.testing.assert_array_equal(ours, token_accuracy(LOGITS, LABELS))


def test_predictions_that_the_dtype_of_labels_lacks_are_wrong():
    assert token_accuracy(np.eye(300)[None, [259]], np.array([[3]], "uint8")) == (0, 1)


@pytest.mark.parametrize("columns", [None, 32])
def test_products_over_rows_on_either_processor(columns, monkeypatch):
    monkeypatch.setattr(shape, "COLUMNS", columns)
    x, y = LOGITS[0], LOGITS[1, :, :3]
    np.testing.assert_allclose(shape.matmul_over_rows(x, y), x.T @ y, rtol=1e-5)


@pytest.mark.parametrize("label", [-1, 7, 50])
def test_the_loss_of_a_label_out_of_range_is_no_number(label):
    """With XLA, which would take another label; otherwise it is an error of TensorFlow's."""
    loss = tf.function(padded_cross_entropy, jit_compile=True)
    assert np.isnan(loss(LOGITS, np.where(LABELS == 6, label, LABELS), 0.1)[0])


@pytest.mark.parametrize("label_smoothing", [-0.1, 1.0])
def test_smoothing_that_is_no_probability(label_smoothing):
    message = rf"label_smoothing must be in \[0, 1\), got {label_smoothing}"
    with pytest.raises(ValueError, match=message):
        padded_cross_entropy(LOGITS, LABELS, label_smoothing)


def test_labels_of_another_shape():
    with pytest.raises(ValueError, match="as the logits, got shape"):
        padded_cross_entropy(LOGITS, np.transpose(LABELS))


@pytest.mark.parametrize("xla", [False, True])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_joined_with_the_softmax_it_is_the_same(label_smoothing, xla, monkeypatch):
    """In blocks that divide the positions or not, a short one and one of padding alone among them."""
    rng, several = np.random.default_rng(1), 2.5
    x, table = (tf.constant(rng.normal(size=size), tf.float32) for size in ((3, 4, 5), (7, 5)))

    def of_logits(x, table):
        logits = x @ tf.transpose(table)
        right, _ = token_accuracy(logits, LABELS)
        return *padded_cross_entropy(logits, LABELS, label_smoothing), right

    def joined(x, table):
        given = x, table, LABELS, label_smoothing
        loss, right, tokens = joined_cross_entropy(*given, count_right=True)
        return loss, tokens, right

    def with_gradients(function, x, table):
        with tf.GradientTape() as tape:
            tape.watch((x, table))
            sums = function(x, table)
            scaled = several * sums[0]
        return *sums, *map(tf.convert_to_tensor, tape.gradient(scaled, (x, table)))

    assert of_logits(x, 0 * table)[2] == joined(x, 0 * table)[2] == 0  # of equal ones the first
    wanted = with_gradients(of_logits, x, table)
    for positions in (2, 5, 512):
        monkeypatch.setattr(losses, "BLOCK_POSITIONS", positions)
        losses._joined.cache_clear()
        spec = [tf.TensorSpec([None, None, 5]), tf.TensorSpec([7, 5])]
        graph = tf.function(lambda *given: with_gradients(joined, *given), spec, jit_compile=xla)
        for got, expected in zip(graph(x, table), wanted, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
