"""T2T's optimizers: against NumPy in float64, against T2T's own numbers, and inside Keras."""

import functools
import json
from collections.abc import Callable
from typing import NamedTuple

import golden
import keras
import numpy as np
import numpy_optimizers as by_hand
import pytest
import tensorflow as tf
import toy
from networks import small_model

import t2t_keras as t2t
from t2t_keras import optimizers
from t2t_keras.checkpoints.names import is_slot, is_table, slot_variables, trainable_names
from t2t_keras.errors import UserError
from t2t_keras.settings import HParams

ADAM = "optimizer_adam_beta1=0.8,optimizer_adam_beta2=0.9,optimizer_adam_epsilon=0.01"


class Case(NamedTuple):
    overrides: str
    by_hand: Callable


FACTOR = "optimizer=adafactor,optimizer_adafactor_"
CASES = {
    "adam": Case(f"optimizer=adam,{ADAM}", lambda: by_hand.Adam(0.8, 0.9, 0.01)),
    "true_adam": Case(f"optimizer=true_adam,{ADAM}", lambda: by_hand.Adam(0.8, 0.9, 0.01)),
    "multistep_adam": Case(f"optimizer=multistep_adam,optimizer_multistep_accumulate_steps=3,{ADAM}", lambda: by_hand.Adam(0.8, 0.9, 0.01)),
    "adam_w": Case(f"optimizer=adam_w,weight_decay=0.02,{ADAM}", lambda: by_hand.Adam(0.8, 0.9, 0.01, 0.02)),
    "momentum": Case("optimizer=momentum,optimizer_momentum_momentum=0.7", lambda: by_hand.Momentum(0.7, False)),
    "momentum_nesterov": Case("optimizer=momentum,optimizer_momentum_nesterov=true", lambda: by_hand.Momentum(0.9, True)),
    "sgd": Case("optimizer=SGD", by_hand.SGD),
    "adafactor": Case("optimizer=Adafactor", lambda: by_hand.Adafactor(0, by_hand.power(0.8))),
    "adafactor_beta1": Case(f"{FACTOR}beta1=0.9,optimizer_adafactor_memory_exponent=0.5", lambda: by_hand.Adafactor(0.9, by_hand.power(0.5))),
    "adafactor_adam": Case(f"{FACTOR}decay_type=adam,optimizer_adafactor_beta2=0.9", lambda: by_hand.Adafactor(0, by_hand.corrected(0.9))),
    "adafactor_unfactored": Case(f"{FACTOR}factored=false", lambda: by_hand.Adafactor(0, by_hand.power(0.8), factored=False)),
    "adafactor_absolute": Case(
        f"{FACTOR}multiply_by_parameter_scale=false,optimizer_adafactor_clipping_threshold=0.5",
        lambda: by_hand.Adafactor(0, by_hand.power(0.8), threshold=0.5, relative=False),
    ),
}  # fmt: skip

SHAPES = {"number": (), "scale": (6,), "kernel": (4, 6), "row": (1, 7), "column": (5, 1)}
SHAPES["cube"] = (2, 3, 4)
TABLE = "shared_embedding"
TABLE_SHAPE, TABLE_SHARDS = (11, 3), 4
"""Four shards of 3, 3, 3 and 2 rows."""

UPDATES = 22


def settings(overrides=""):
    """Returns settings with a new rate at every update, the first 0, and a table cut in four."""
    return t2t.registry.hparams("transformer_base").override(
        "learning_rate_schedule=constant*linear_warmup*rsqrt_decay,learning_rate_constant=0.5,"
        f"learning_rate_warmup_steps=5,symbol_modality_num_shards={TABLE_SHARDS},{overrides}"
    )


def variables_like(values):
    """Makes Keras variables by name; the table has the path that it has in a `Transformer`."""
    variables = {}
    for name, value in values.items():
        with keras.name_scope("transformer"), keras.name_scope(name):
            variables[name] = keras.Variable(value, name="table" if name == TABLE else "kernel")
    return variables


@functools.cache
def start_and_gradients():
    """Returns first values, and gradients of every size; one row of the table never has any."""
    random = np.random.default_rng(0)
    shapes = {**SHAPES, TABLE: TABLE_SHAPE}
    start = {name: random.normal(size=shape) for name, shape in shapes.items()}
    start["scale"][:] = 0
    sizes = {name: (UPDATES, *[1] * len(shape)) for name, shape in shapes.items()}
    gradients = {
        name: random.normal(size=(UPDATES, *shape)) * np.exp(random.normal(size=sizes[name]))
        for name, shape in shapes.items()
    }
    gradients[TABLE][:, 2] = 0
    return [{n: np.asarray(a, "float32") for n, a in of.items()} for of in (start, gradients)]


def pieces(name, array):
    """Returns T2T's variables of one of ours: a table is cut by rows."""
    return np.array_split(array, TABLE_SHARDS) if name == TABLE else [array]


@functools.cache
def updated_by_hand(case):
    """Returns each variable's value and slots after all updates, tables joined."""
    schedule = t2t.schedules.learning_rate_schedule(settings(CASES[case].overrides))
    rates = [float(schedule(i)) for i in range(UPDATES)]
    start, gradients = start_and_gradients()
    after = {}
    for name in start:
        of_pieces = []
        for i, value in enumerate(pieces(name, start[name].astype("float64"))):
            optimizer = CASES[case].by_hand()
            for update in range(UPDATES):
                gradient = pieces(name, gradients[name][update].astype("float64"))[i]
                value = optimizer.update(value, gradient, rates[update], update + 1)
            of_pieces.append([value, *optimizer.slots])
        after[name] = [
            np.concatenate(arrays) if name == TABLE else arrays[0]
            for arrays in zip(*of_pieces, strict=True)
        ]
    return after


def assert_near(ours, theirs, tolerance=1e-5):
    """Compares within float32's error of the largest element."""
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() <= tolerance * np.abs(theirs).max()


XLA = ("adam", "adam_w", "momentum_nesterov", "adafactor_beta1", "adafactor_absolute")
"""Cases that together have all operations: XLA compiles them, too."""


@pytest.mark.parametrize(
    ("case", "xla"), [*((case, False) for case in CASES), *((case, True) for case in XLA)]
)
def test_values_and_slots_after_many_updates(case, xla):
    """`update_step` is called as our training step does, with the counting outside."""
    start, gradients = start_and_gradients()
    variables = variables_like(start)
    optimizer = optimizers.create(settings(CASES[case].overrides))
    optimizer.build(list(variables.values()))

    @tf.function(jit_compile=xla)
    def update(rate, *gradients):
        for gradient, variable in zip(gradients, variables.values(), strict=True):
            optimizer.update_step(gradient, variable.value, rate)

    for i in range(UPDATES):
        rate = tf.convert_to_tensor(optimizer.learning_rate)
        update(rate, *[tf.constant(gradients[name][i]) for name in variables])
        optimizer.iterations.assign_add(1)
    assert int(optimizer.iterations) == UPDATES

    slots = optimizer.t2t_slots()
    assert list(slots) == sorted(slots)
    wanted = updated_by_hand(case)
    for place, (name, variable) in enumerate(variables.items()):
        of_variable = [of_kind[place] for of_kind in slots.values()]
        ours = [variable, *[slot for slot in of_variable if slot is not None]]
        assert len(ours) == len(wanted[name])
        for our, want in zip(ours, wanted[name], strict=True):
            assert_near(our, want)


class Rates(keras.optimizers.schedules.LearningRateSchedule):
    """Learning rates by number."""

    def __init__(self, rates):
        self.rates = rates

    def __call__(self, step):
        return tf.gather(self.rates, step)

    def get_config(self):
        return {"rates": list(self.rates)}


@functools.cache
def t2t_numbers():
    """Loads the values that T2T 1.15.7's own optimizers gave five variables in 22 batches."""
    folder = golden.FOLDER / "optimizers"
    config = json.loads((folder / "config.json").read_text())
    return config, dict(np.load(folder / "optimizers.npz"))


def t2t_after(case):
    """Returns T2T's variables by name after 22 batches, tables joined."""
    config, arrays = t2t_numbers()
    shapes = config[case]["variables"]
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes.values()])
    flat = np.split(arrays[case], ends[:-1])
    joined = {}
    for (name, shape), array in zip(shapes.items(), flat, strict=True):
        before, _, after = name.partition("/weights_")
        if after:
            name = f"{before}{after[1:]}"
        joined.setdefault(name, []).append(array.reshape(shape))
    return {name: np.concatenate(a) if len(a) > 1 else a[0] for name, a in joined.items()}


@pytest.mark.parametrize("case", t2t_numbers()[0])
def test_t2t_itself(case):
    """`apply` is called in a graph, as Keras does; multistep Adam ends in the middle of a mean."""
    config, arrays = t2t_numbers()
    hp = t2t.registry.hparams("transformer_base").override(config[case]["overrides"])
    batches = hp.optimizer_multistep_accumulate_steps or None
    optimizer = optimizers.create(hp, gradient_accumulation_steps=batches)
    optimizer.learning_rate = Rates(arrays["rates"])
    names = [name.removeprefix("start/") for name in arrays if name.startswith("start/")]
    variables = variables_like(
        {TABLE if name == "table" else name: arrays[f"start/{name}"] for name in names}
    )
    optimizer.build(list(variables.values()))
    apply = tf.function(lambda *gradients: optimizer.apply(list(gradients), variables.values()))
    for i in range(len(arrays["rates"])):
        apply(*[tf.constant(arrays[f"gradients/{name}"][i]) for name in names])

    ours = {f"transformer/{n}": v for n, v in zip(names, variables.values(), strict=True)}
    for kind, slots in optimizer.t2t_slots().items():
        for name, slot in zip(names, slots, strict=True):
            if slot is not None:
                ours[f"training/transformer/{name}/{kind}"] = slot
    ours.update(optimizer.t2t_scalars())
    wanted = t2t_after(case)
    assert ours.keys() == wanted.keys()
    for name in wanted:
        assert_near(ours[name], wanted[name], tolerance=3e-6)
        assert name.startswith("transformer/") or name.count("/") == 1 or is_slot(name)


# Names


@pytest.mark.parametrize(
    ("overrides", "names"),
    [
        ("adam", ["Adam", "Adam_1"]),
        ("adam_w", ["AdamW", "AdamW_1"]),
        ("adafactor", ["Adafactor", "Adafactor_1"]),
        ("adafactor,optimizer_adafactor_factored=false", ["Adafactor"]),
        ("adafactor,optimizer_adafactor_beta1=0.5", ["Adafactor", "Adafactor_1", "Adafactor_2"]),
        ("momentum", ["Momentum"]),
        ("sgd", []),
    ],
)
def test_slots_of_a_transformer(overrides, names):
    model = small_model("num_hidden_layers=1")
    optimizer = optimizers.create(model.hp.override(f"optimizer={overrides}"))
    optimizer.build(model.trainable_variables)
    slots = optimizer.t2t_slots()
    assert list(slots) == names
    named = slot_variables(model, slots)
    assert len(named) == sum(slot is not None for of_kind in slots.values() for slot in of_kind)
    assert all(is_slot(name) for name in named)
    kernel = "training/transformer/body/encoder/layer_0/ffn/conv1/kernel"
    shapes = [tuple(named[f"{kernel}/{name}"].shape) for name in names]
    if names[:1] == ["Adafactor"] and len(names) > 1:
        assert shapes[-2:] == [(16,), (24,)]
        # 23 rows of 16 in three shards, each with its columns
        table = "training/transformer/symbol_modality_23_16/shared"
        rows, columns = (named[f"{table}/{name}"] for name in names[-2:])
        assert (tuple(rows.shape), tuple(columns.shape)) == ((23,), (48,))
    else:
        assert shapes == [(16, 24)] * len(names)


@pytest.mark.parametrize(
    "overrides", ["", "shared_embedding_and_softmax_weights=false", "pos=emb,shared_embedding=true"]
)
def test_adafactor_finds_the_tables_that_t2t_cuts(overrides):
    model = small_model(f"num_hidden_layers=1,{overrides}")
    optimizer = optimizers.create(model.hp.override("optimizer=adafactor"))
    optimizer.build(model.trainable_variables)
    cut = [name for name, n in zip(trainable_names(model), optimizer.shards, strict=True) if n > 1]
    assert cut
    assert cut == [name for name in trainable_names(model) if is_table(name)]
    assert set(optimizer.shards) == {1, 3}


def test_a_table_of_fewer_rows_than_shards():
    (table,) = variables_like({TABLE: np.ones((2, 3), "float32")}).values()
    optimizer = optimizers.Adafactor(0.1, table_shards=4)
    optimizer.build([table])
    optimizer.apply([np.ones((2, 3), "float32")], [table])
    np.testing.assert_allclose(table, np.full((2, 3), 0.9), rtol=1e-6)


# Weight decay


@pytest.mark.parametrize("overrides", ["", "pos=emb,shared_embedding_and_softmax_weights=false"])
def test_weight_decay_is_the_gradient_of_t2ts_loss(overrides):
    """rate times half the squares of all but biases, of layer normalisation too."""
    model = small_model(f"num_hidden_layers=1,{overrides}")
    named = t2t.checkpoints.t2t_variables(model)
    names = trainable_names(model)
    assert sorted(names) == sorted(named)
    with tf.GradientTape() as tape:
        terms = [
            tf.nn.l2_loss(variable.value)
            for name, variable in named.items()
            if not name.endswith(("/bias", "layer_norm_bias"))
        ]
        loss = 0.3 * tf.add_n(terms)
    values = [variable.value for variable in model.trainable_variables]
    wanted = tape.gradient(loss, values, unconnected_gradients="zero")
    ones = [tf.ones_like(value) for value in values]
    ours = optimizers.with_weight_decay(ones, model.trainable_variables, names, 0.3)
    for our, want in zip(ours, wanted, strict=True):
        np.testing.assert_allclose(our, want + 1.0, rtol=1e-6)
    left_out = [name for name in names if not optimizers.is_decayed(name, named[name])]
    assert {name.rsplit("/", 1)[1] for name in left_out} == {"bias", "layer_norm_bias"}
    assert optimizers.with_weight_decay(ones, values, names, 0.0)[0] is ones[0]


# In Keras


def small_keras_model(seed=0):
    """Embedding with a sparse gradient, a matrix and vectors."""
    keras.utils.set_random_seed(seed)
    layers = keras.layers
    hidden = layers.Embedding(7, 5), layers.LayerNormalization(), layers.Flatten()
    return keras.Sequential([keras.Input((4,), dtype="int32"), *hidden, layers.Dense(3)])


def examples():
    random = np.random.default_rng(1)
    return random.integers(7, size=(24, 4)).astype("int32"), random.integers(3, size=24)


LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@pytest.mark.parametrize("case", ["multistep_adam", "adam_w", "adafactor", "sgd"])
def test_fit_is_a_loop_of_update_steps(case):
    """Eight batches; the multistep optimizer updates after the third and the sixth."""
    hp = settings(CASES[case].overrides)
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
        assert_near(variable, other)
    embedding = small_keras_model().trainable_variables[0]
    assert np.abs(ours.trainable_variables[0] - embedding).max() > 0


def test_multistep_adam_does_not_update_at_every_batch_unnoticed():
    hp = settings("optimizer=multistep_adam,optimizer_multistep_accumulate_steps=4")
    model = small_keras_model()
    model.compile(optimizers.create(hp), LOSS)
    with pytest.raises(UserError, match="create it with gradient_accumulation_steps=4"):
        model.fit(*examples(), verbose=0)


@pytest.mark.parametrize("case", CASES)
def test_config_round_trip(case):
    optimizer = optimizers.create(settings(CASES[case].overrides), clipnorm=0.5)
    written = json.dumps(keras.optimizers.serialize(optimizer))
    again = keras.optimizers.deserialize(json.loads(written))
    assert type(again) is type(optimizer)
    assert json.dumps(again.get_config()) == json.dumps(optimizer.get_config())
    assert again.clipnorm == 0.5
    assert float(again.learning_rate) == float(optimizer.learning_rate)
    assert type(optimizer).from_config(optimizer.get_config()).get_config() == again.get_config()


@pytest.mark.parametrize("case", ["adam_w", "adafactor_beta1", "momentum"])
def test_a_saved_model_trains_on(case, tmp_path):
    model = small_keras_model()
    model.compile(optimizers.create(settings(CASES[case].overrides)), LOSS)
    model.fit(*examples(), batch_size=6, shuffle=False, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert int(again.optimizer.iterations) == 4
    for kind, slots in model.optimizer.t2t_slots().items():
        for slot, other in zip(slots, again.optimizer.t2t_slots()[kind], strict=True):
            np.testing.assert_array_equal(slot, other)
    for one in (model, again):
        one.fit(*examples(), batch_size=6, shuffle=False, verbose=0)
    for variable, other in zip(model.trainable_variables, again.trainable_variables, strict=True):
        np.testing.assert_array_equal(variable, other)


ON_TWO_DEVICES = """
import keras, numpy as np, tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
from t2t_keras import optimizers

MAKERS = {
    "adam_w": lambda: optimizers.AdamW(learning_rate=0.1, decay=0.01),
    "adafactor": lambda: optimizers.Adafactor(0.1, beta_1=0.5, table_shards=3),
    "momentum": lambda: optimizers.Momentum(0.1),
}
values = np.random.default_rng(0).normal(size=(2, 4, 7, 5)).astype("float32")

def update(make, strategy, compiled):
    with strategy.scope(), keras.name_scope("softmax"):
        variable = keras.Variable(values[0, 0], name="table")
        optimizer = make()
        optimizer.build([variable])
    halves = tf.constant([0.25, 0.75])
    half = tf.function(
        lambda g, rate: optimizer.update_step(g, variable.value, rate), jit_compile=True
    )

    def replica(gradient):
        context = tf.distribute.get_replica_context()
        alone = context.num_replicas_in_sync == 1
        share = 1.0 if alone else halves[context.replica_id_in_sync_group]
        if not compiled:
            return optimizer.apply([gradient * share], [variable])
        half(context.all_reduce("SUM", gradient * share), tf.convert_to_tensor(0.1))
        optimizer.iterations.assign_add(1)

    step = tf.function(lambda gradient: strategy.run(replica, args=(gradient,)))
    for gradient in values[1]:
        step(tf.constant(gradient))
    return [np.stack([np.asarray(part) for part in strategy.experimental_local_results(v.value)])
            for v in (variable, *(s for of in optimizer.t2t_slots().values() for s in of))]

for name, make in MAKERS.items():
    alone = update(make, tf.distribute.get_strategy(), True)
    for compiled in (False, True):
        both = update(make, tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]), compiled)
        for one, two in zip(alone, both, strict=True):
            assert two.shape[0] == 2
            np.testing.assert_allclose(two, np.repeat(one, 2, 0), rtol=1e-5, atol=1e-7)
    print(name)
"""


def test_on_two_devices_as_on_one():
    """MirroredStrategy updates both as Keras applies gradients and as a compiled step does."""
    done = toy.python("-c", ON_TWO_DEVICES)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["adam_w", "adafactor", "momentum"]


# Settings


def test_optimizers_that_cannot_be_made():
    wanted = "optimizer_multistep_accumulate_steps of 1 or more, got 0"
    with pytest.raises(UserError, match=wanted):
        optimizers.create(settings("optimizer=multistep_adam"))
    recorded = HParams.from_dict({"optimizer": "RMSProp"})  # takes what tensor2tensor recorded
    with pytest.raises(UserError, match=r"got 'RMSProp' .none of T2T's Transformer sets"):
        optimizers.create(recorded)
