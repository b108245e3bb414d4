"""T2T's optimizers: against T2T's own numbers, by hand, and inside Keras."""

import json

import golden
import keras
import numpy as np
import pytest
import tensorflow as tf
from networks import small_model

import t2t_keras as t2t
from t2t_keras import optimizers
from t2t_keras.checkpoints.names import is_slot, is_table, trainable_names
from t2t_keras.errors import UserError
from t2t_keras.settings import HParams

CONFIG = json.loads((golden.FOLDER / "optimizers" / "config.json").read_text())
"""Settings and variables of each optimizer whose 22 batches are in `optimizers.npz`, by T2T 1.15.7."""

OVERRIDES = {name: case["overrides"] for name, case in CONFIG.items()}
OVERRIDES["adam_w"] = "optimizer=adam_w,weight_decay=0.02"
XLA = ("adam", "momentum_nesterov", "adafactor_beta1", "adafactor_absolute")
"""Cases that together have all operations: XLA compiles them, too."""


def settings(overrides=""):
    """Returns settings with a new rate at every update, the first 0."""
    return t2t.registry.hparams("transformer_base").override(
        "learning_rate_schedule=constant*linear_warmup*rsqrt_decay,learning_rate_constant=0.5,"
        f"learning_rate_warmup_steps=5,{overrides}"
    )


def variables_like(values):
    """Makes Keras variables by name; the table has the path that it has in a `Transformer`."""
    variables = {}
    for name, value in values.items():
        scope, last = ("shared_embedding", "table") if name == "table" else (name, "kernel")
        with keras.name_scope("transformer"), keras.name_scope(scope):
            variables[name] = keras.Variable(value, name=last)
    return variables


def t2t_after(case, values):
    """Returns T2T's variables by name after 22 batches, tables joined."""
    shapes = CONFIG[case]["variables"]
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes.values()])
    joined = {}
    for (name, shape), array in zip(shapes.items(), np.split(values, ends[:-1]), strict=True):
        before, _, after = name.partition("/weights_")
        joined.setdefault(before + after[1:], []).append(array.reshape(shape))
    return {name: np.concatenate(a) if len(a) > 1 else a[0] for name, a in joined.items()}


@pytest.mark.parametrize(
    ("case", "xla"), [*((case, False) for case in CONFIG), *((case, True) for case in XLA)]
)
def test_t2t_itself(case, xla):
    """By `apply` in a graph, as Keras does, or with XLA by `update_step`, as our training step does.

    Multistep Adam ends in the middle of a mean; the vector begins with 0, a row of the table never has
    a gradient.
    """
    arrays = dict(np.load(golden.FOLDER / "optimizers" / "optimizers.npz"))
    hp = t2t.registry.hparams("transformer_base").override(OVERRIDES[case])
    batches = hp.optimizer_multistep_accumulate_steps or None
    optimizer = optimizers.create(hp, gradient_accumulation_steps=batches)
    optimizer.learning_rate = lambda: tf.gather(arrays["rates"], optimizer.variables[0])
    names = [name.removeprefix("start/") for name in arrays if name.startswith("start/")]
    variables = variables_like({name: arrays[f"start/{name}"] for name in names})
    optimizer.build(list(variables.values()))

    @tf.function(jit_compile=xla)
    def update(rate, *gradients):
        if xla:
            for gradient, variable in zip(gradients, variables.values(), strict=True):
                optimizer.update_step(gradient, variable.value, rate)
        else:
            optimizer.apply(list(gradients), variables.values())

    for i, rate in enumerate(arrays["rates"]):
        update(tf.constant(rate), *[tf.constant(arrays[f"gradients/{name}"][i]) for name in names])
        if xla:  # the counting is outside
            optimizer.iterations.assign_add(1)

    ours = {f"transformer/{n}": v for n, v in variables.items()}
    slots_by_kind = optimizer.t2t_slots()
    assert list(slots_by_kind) == sorted(slots_by_kind)
    for kind, slots in slots_by_kind.items():
        for name, slot in zip(names, slots, strict=True):
            if slot is not None:
                ours[f"training/transformer/{name}/{kind}"] = slot
    ours.update(optimizer.t2t_scalars())
    wanted = t2t_after(case, arrays[case])
    assert ours.keys() == wanted.keys()
    for name in wanted:
        assert golden.relative_error(ours[name], wanted[name]) < 3e-6
        assert name.startswith("transformer/") or name.count("/") == 1 or is_slot(name)


def adam_w(gradients):
    value, m, v = 0.5, 0.0, 0.0
    for t, gradient in enumerate(gradients, 1):
        m, v = 0.8 * m + 0.2 * gradient, 0.9 * v + 0.1 * gradient**2
        rate = 0.1 * (1 - 0.9**t) ** 0.5 / (1 - 0.8**t)
        value = value * (1 - 0.02) - rate * m / (v**0.5 + 0.01)
    return value


def momentum(gradients):
    value, total = 0.5, 0.0
    for gradient in gradients:
        total = 0.7 * total + gradient
        value -= 0.1 * total
    return value


def adafactor(decay):
    def by_hand(gradients):
        value, v = 0.5, 0.0
        for t, gradient in enumerate(gradients, 1):
            v = decay(t) * v + (1 - decay(t)) * gradient**2
            step = gradient / v**0.5
            value -= 0.1 * max(1e-3, abs(value)) * step / max(1, abs(step))
        return value

    return by_hand


@pytest.mark.parametrize(
    ("overrides", "by_hand", "slots"),
    [
        ("adam_w,weight_decay=0.02,optimizer_adam_beta1=0.8,optimizer_adam_beta2=0.9,optimizer_adam_epsilon=0.01", adam_w, ["AdamW", "AdamW_1"]),
        ("Momentum,optimizer_momentum_momentum=0.7", momentum, ["Momentum"]),
        ("Adafactor,optimizer_adafactor_memory_exponent=0.5", adafactor(lambda t: 1 - t**-0.5), ["Adafactor"]),
        ("adafactor,optimizer_adafactor_decay_type=adam,optimizer_adafactor_beta2=0.9", adafactor(lambda t: 0.9 * (1 - 0.9 ** (t - 1)) / (1 - 0.9**t)), ["Adafactor"]),
    ],
)  # fmt: skip
def test_one_number_by_hand(overrides, by_hand, slots):
    """In float64, with settings that T2T's numbers do not have."""
    gradients = np.random.default_rng(0).normal(size=22)
    variable = keras.Variable(0.5)
    optimizer = optimizers.create(settings(f"optimizer={overrides}"))
    optimizer.build([variable])
    for gradient in gradients:
        optimizer.update_step(tf.constant(gradient, tf.float32), variable, 0.1)
        optimizer.iterations.assign_add(1)
    assert float(variable) == pytest.approx(by_hand(gradients), rel=1e-5)
    assert list(optimizer.t2t_slots()) == slots


@pytest.mark.parametrize(
    "overrides", ["", "shared_embedding_and_softmax_weights=false", "pos=emb,shared_embedding=true"]
)
def test_adafactor_finds_the_tables_that_t2t_cuts(overrides):
    model = small_model(f"{overrides}")
    optimizer = optimizers.create(model.hp.override("optimizer=adafactor"))
    optimizer.build(model.trainable_variables)
    cut = [name for name, n in zip(trainable_names(model), optimizer.shards, strict=True) if n > 1]
    assert cut
    assert cut == [name for name in trainable_names(model) if is_table(name)]
    assert set(optimizer.shards) == {1, 3}


def test_a_table_of_fewer_rows_than_shards():
    (table,) = variables_like({"table": np.ones((2, 3), "float32")}).values()
    optimizer = optimizers.Adafactor(0.1, table_shards=4)
    optimizer.build([table])
    optimizer.apply([np.array([[1] * 3, [0] * 3], "float32")], [table])
    np.testing.assert_allclose(table, [[0.9] * 3, [1] * 3], rtol=1e-6)  # no gradient, no change
    assert [list(each.shape) for each in optimizer.slots[0].values()] == [[2], [12]]  # as in T2T


# In Keras


def small_keras_model():
    keras.utils.set_random_seed(0)
    layers = keras.layers
    hidden = layers.Embedding(7, 5), layers.LayerNormalization(), layers.Flatten()
    return keras.Sequential([keras.Input((4,), dtype="int32"), *hidden, layers.Dense(3)])


def examples():
    random = np.random.default_rng(1)
    return random.integers(7, size=(24, 4)).astype("int32"), random.integers(3, size=24)


LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@pytest.mark.parametrize("case", ["multistep_adam", "adam_w", "adafactor", "sgd"])
def test_fit_is_a_loop_of_update_steps(case):
    """Eight batches; the multistep optimizer updates after the fourth and the last."""
    hp = settings(OVERRIDES[case])
    n = hp.optimizer_multistep_accumulate_steps or 1
    inputs, classes = examples()
    ours, theirs = small_keras_model(), small_keras_model()
    theirs.compile(optimizers.create(hp, gradient_accumulation_steps=n if n > 1 else None), LOSS)
    theirs.fit(inputs, classes, batch_size=3, epochs=1, shuffle=False, verbose=0)

    optimizer = optimizers.create(hp)
    optimizer.build(ours.trainable_variables)
    schedule = t2t.schedules.learning_rate_schedule(hp)
    gathered = []
    for batch in range(8):
        rows = slice(3 * batch, 3 * batch + 3)
        with tf.GradientTape() as tape:
            loss = LOSS(classes[rows], ours(inputs[rows], training=True))
        gradients = tape.gradient(loss, [v.value for v in ours.trainable_variables])
        gathered.append([tf.convert_to_tensor(gradient) for gradient in gradients])
        if len(gathered) == n:
            means = [tf.add_n(of_variable) / n for of_variable in zip(*gathered, strict=True)]
            for variable, mean in zip(ours.trainable_variables, means, strict=True):
                optimizer.update_step(mean, variable, schedule(batch))
            optimizer.iterations.assign_add(1)
            gathered = []
    assert int(theirs.optimizer.iterations) == int(optimizer.iterations) == 8 // n
    for variable, other in zip(ours.trainable_variables, theirs.trainable_variables, strict=True):
        assert golden.relative_error(variable, other) < 1e-5
    embedding = small_keras_model().trainable_variables[0]
    assert np.abs(ours.trainable_variables[0] - embedding).max() > 0


def test_multistep_adam_does_not_update_at_every_batch_unnoticed():
    hp = settings("optimizer=multistep_adam,optimizer_multistep_accumulate_steps=4")
    model = small_keras_model()
    for steps in (None, 2):
        model.compile(optimizers.create(hp, gradient_accumulation_steps=steps), LOSS)
        with pytest.raises(UserError, match="create it with gradient_accumulation_steps=4"):
            model.fit(*examples(), verbose=0)


@pytest.mark.parametrize("case", OVERRIDES)
def test_config_round_trip(case):
    optimizer = optimizers.create(settings(OVERRIDES[case]), clipnorm=0.5)
    written = json.dumps(keras.optimizers.serialize(optimizer))
    again = keras.optimizers.deserialize(json.loads(written))
    assert type(again) is type(optimizer)
    assert json.dumps(again.get_config()) == json.dumps(optimizer.get_config())
    assert again.clipnorm == 0.5
    assert float(again.learning_rate) == float(optimizer.learning_rate)
    assert type(optimizer).from_config(optimizer.get_config()).get_config() == again.get_config()


# Settings


def test_optimizers_that_cannot_be_made():
    with pytest.raises(UserError, match="optimizer_multistep_accumulate_steps of 1 or more, got 0"):
        optimizers.create(settings("optimizer=multistep_adam"))
    with pytest.raises(UserError, match=r"got 'RMSProp' .none of T2T's Transformer sets"):
        optimizers.create(HParams.from_dict({"optimizer": "RMSProp"}))  # as T2T recorded it
    with pytest.raises(UserError, match=r"AdamW decays every variable: use keras\.optim"):
        optimizers.AdamW(decay=0.1).exclude_from_weight_decay(var_names=["bias"])
