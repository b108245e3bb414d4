"""A step of our network on JAX, or a beam search; started by `device_steps.py`."""

import os
import sys
from pathlib import Path

os.environ["KERAS_BACKEND"] = "jax"
sys.path.append(str(Path(__file__).parents[1] / "examples"))

import jax
import keras
import on_jax
from step_timing import DROPOUT, LABEL_SMOOTHING, answer

import t2t_keras as t2t


def make_step(spec):
    sys.modules["tensorflow"] = (
        None  # Keras would load it if installed, which takes time and memory
    )
    jax.config.update("jax_default_matmul_precision", "tensorfloat32")
    keras.utils.set_random_seed(0)
    device = jax.devices()[0]
    facts = {
        "device": device.device_kind,
        "gpu": device.platform == "gpu",
        "versions": f"JAX {jax.__version__}, Keras {keras.__version__}",
    }
    make = {"train": training, "decode": decoding, "search": search}[spec["kind"]]
    run = make(spec, facts)

    def step():
        run()
        in_use = (device.memory_stats() or {}).get("peak_bytes_in_use", 0)
        facts["device_megabytes"] = in_use / 1e6

    return step, facts


def training(spec, facts):
    model = make_model(spec)
    optimizer = t2t.optimizers.create(model.hp)
    facts["made"] = spec["rows"] * spec["length"]
    batch = {
        side: random_ids(number, spec, (spec["rows"], spec["length"]))
        for number, side in enumerate(("inputs", "targets"))
    }

    state = on_jax.initial_state(model, optimizer)
    step = on_jax.training_step(model, optimizer)

    def run():
        nonlocal state
        loss, state = step(state, batch)
        loss.block_until_ready()

    return run


def decoding(spec, facts):
    model = make_model(spec)
    rows, hypotheses, position = spec["rows"], spec["hypotheses"], spec["length"] // 2
    facts["made"] = rows * hypotheses
    weights = [variable.value for variable in model.variables]
    source = compiled(model, model.encode_source)(
        weights, random_ids(0, spec, (rows, spec["length"]))
    )
    last_ids = random_ids(1, spec, (rows, hypotheses))
    visible = jax.numpy.ones((rows, hypotheses, (position + 1) * hypotheses), bool)
    caches = [
        {
            name: jax.random.normal(
                jax.random.key(3), (*empty.shape[:2], position * hypotheses, empty.shape[3])
            ).astype(empty.dtype)
            for name, empty in layer.items()
        }
        for layer in model.empty_caches(rows)
    ]
    kernels = compiled(model, model.step_kernels)(weights)
    step = compiled(
        model,
        lambda ids, caches, source, *others: model.decode_step(
            ids, position, caches, source, *others
        ),
    )

    def run():
        jax.block_until_ready(step(weights, last_ids, caches, source, visible, kernels))

    return run


def search(spec, facts):
    model = make_model(spec)
    facts["made"] = spec["rows"] * spec["length"]
    source = random_ids(0, spec, (spec["rows"], spec["length"]))

    def run():
        ids, _ = t2t.decoding.beam_search(
            model,
            source,
            beam_size=spec["hypotheses"],
            max_lengths=spec["length"],
            min_length=spec["length"],
        )
        ids.block_until_ready()

    return run


def compiled(model, function):
    """Compiles a function; its first argument becomes the values of the model's variables."""

    @jax.jit
    def run(weights, *args):
        with keras.StatelessScope(list(zip(model.variables, weights, strict=True))):
            return function(*args)

    return run


def make_model(spec):
    dropout = ("layer_prepostprocess_dropout", "attention_dropout", "relu_dropout")
    hp = t2t.registry.hparams("transformer_base").replace(
        num_hidden_layers=spec["layers"],
        hidden_size=spec["hidden"],
        filter_size=spec["filter"],
        num_heads=spec["heads"],
        label_smoothing=LABEL_SMOOTHING,
        **dict.fromkeys(dropout, DROPOUT),
    )
    dtype = "float32" if spec["precision"] == "float32" else f"mixed_{spec['precision']}"
    size = spec["vocab"]
    return t2t.Transformer(hp, source_vocab_size=size, target_vocab_size=size, dtype=dtype)


def random_ids(number, spec, shape):
    return jax.random.randint(jax.random.key(number), shape, 2, spec["vocab"])


if __name__ == "__main__":
    answer(make_step)
