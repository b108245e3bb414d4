"""The model as a Keras user meets it: saved, compiled, wired, in half precision."""

import functools
import json
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
import toy
from golden import NO_DROPOUT
from networks import SMALL, gradients, small_model
from test_transformer import SOURCE, TARGETS

import t2t_keras as t2t
from t2t_keras.precision import in_precision

INPUTS = {"inputs": SOURCE, "targets": TARGETS}
FLOAT_COPIES = t2t.checkpoints.t2t_variables, lambda model: in_precision(model, "bfloat16")

MODELS = {
    "shared": "",
    "separate": "shared_embedding_and_softmax_weights=false",
    "dropout": "attention_dropout=0.2,relu_dropout=0.2,relu_dropout_broadcast_dims=1",
    "paper": "pos=timing_paper",
    "learned": "pos=emb,max_length=9,use_target_space_embedding=false",
    "relative": "self_attention_type=dot_product_relative,max_relative_position=2,pos=none",
}


@pytest.fixture(scope="module")
def model_of():
    """One model of each kind, not to be changed."""
    return functools.cache(lambda name: small_model(MODELS[name]))


@pytest.mark.parametrize("name", MODELS)
def test_config_and_weights_round_trip(name, tmp_path):
    model = small_model(MODELS[name], target_space_id=3, name="mine")
    again = t2t.Transformer.from_config(json.loads(json.dumps(model.get_config())))
    assert again.get_config() == model.get_config()
    assert again.hp == model.hp
    assert [(w.path, w.shape) for w in again.weights] == [(w.path, w.shape) for w in model.weights]
    model.save_weights(str(tmp_path / "model.weights.h5"))
    again.load_weights(str(tmp_path / "model.weights.h5"))
    np.testing.assert_array_equal(again(INPUTS), model(INPUTS))


def test_config_has_the_set_and_what_was_added_to_it():
    hp = t2t.registry.hparams("transformer_base", SMALL)
    hp = hp.add_hparam("rare_words", 0.5).add_hparam("of_sides", ["a", "b"])
    model = t2t.Transformer(hp, source_vocab_size=5, target_vocab_size=5)
    again = t2t.Transformer.from_config(json.loads(json.dumps(model.get_config())))
    assert again.hp == hp
    assert again.hp.set_name == "transformer_base"
    assert again.hp.replace(rare_words=1).rare_words == 1.0


def test_the_summary_has_shapes_and_no_dropouts(model_of):
    lines = []
    model_of("separate").summary(line_length=100, print_fn=lines.append)
    rows = re.findall(r"(\w+) \(\w+\) +│ (\(.*?\)|\?) ", lines[0])
    sided = [f"{side}_{p}" for side in ("source", "target") for p in ("embedding", "position")]
    hidden = dict.fromkeys([*sided, "encoder", "decoder"], "(None, None, 16)")
    assert dict(rows) == hidden | {"softmax": "(None, None, 23)"}


def test_saved_models_load_in_a_fresh_process(tmp_path, model_of):
    """The model and every layer, by `keras.models.load_model` after one import of ours."""
    layers, small = t2t.layers, {"num_heads": 2, "filter_size": 12}
    ids = {side: keras.Input((None,), dtype="int32") for side in INPUTS}
    embedding = layers.SharedEmbedding(vocab_size=23, hidden_size=8)
    memory = layers.PositionEncoding(kind="emb", max_length=4)(embedding(ids["inputs"]))
    memory = layers.TransformerEncoder(num_layers=1, **small)(memory)
    memory = layers.TransformerEncoderLayer(**small)(memory)
    x = layers.Dropout(0.1)(embedding(ids["targets"]))
    x = layers.MultiHeadAttention(num_heads=2, max_relative_position=2)(x)
    x = layers.TransformerDecoder(num_layers=1, **small)(x, memory)
    x = layers.TransformerDecoderLayer(**small)(x, memory)
    x = layers.PrePostProcess(sequence="dan")(layers.FeedForward(filter_size=12)(x), x)
    wired, wanted = keras.Model(ids, x), {}

    def save(name, model):
        model.save(tmp_path / f"{name}.keras")
        wanted[name] = model(INPUTS)

    save("layers", wired)
    wired.quantize("int8")
    save("int8_layers", wired)
    for name in ("separate", "relative"):
        save(name, model_of(name))
    int8 = small_model(MODELS["relative"], dtype="mixed_bfloat16")
    int8.quantize("int8")
    save("int8", int8)
    np.savez(tmp_path / "inputs.npz", **INPUTS)
    program = f"""
import pathlib
import numpy as np
import keras
from t2t_keras import Transformer
folder = pathlib.Path({str(tmp_path)!r})
given = dict(np.load(folder / "inputs.npz"))
results = {{path.stem: keras.models.load_model(path)(given) for path in folder.glob("*.keras")}}
np.savez(folder / "results.npz", **{{name: np.asarray(result) for name, result in results.items()}})
"""
    toy.succeeded(toy.python("-c", program))
    results = dict(np.load(tmp_path / "results.npz"))
    assert results.keys() == wanted.keys()
    for name, result in results.items():
        np.testing.assert_allclose(result, wanted[name], atol=1e-6, err_msg=name)


@pytest.mark.parametrize("name", ["shared", "learned", "relative"])
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_half_precision(name, policy, model_of):
    tolerance = 0.06 if policy == "mixed_bfloat16" else 0.01
    half = small_model(MODELS[name], dtype=policy)
    logits, weights = half(INPUTS, return_attention_weights=True)
    assert logits.dtype == "float32"
    assert all(layer.dtype == "float32" for layer in keras.tree.flatten(weights))
    assert all(v.dtype == "float32" for v in half.trainable_variables)
    assert half.encode(SOURCE).dtype == half.compute_dtype
    wanted = np.asarray(model_of(name)(INPUTS))
    np.testing.assert_allclose(logits, wanted, atol=tolerance * np.abs(wanted).max())
    assert t2t.Transformer.from_config(half.get_config()).dtype_policy.name == policy


def test_half_precision_gradients_are_float32_and_near():
    wanted = gradients(small_model(NO_DROPOUT), INPUTS)
    for policy in ("mixed_bfloat16", "mixed_float16"):
        half = gradients(small_model(NO_DROPOUT, dtype=policy), INPUTS)
        for ours, theirs in zip(half, wanted, strict=True):
            assert ours.dtype == "float32"
            assert np.isfinite(ours).all()
            assert np.abs(ours - theirs).max() <= 0.15 * np.abs(theirs).max() + 1e-4


def test_a_classifier_in_int8_is_saved(tmp_path):
    hp = t2t.registry.hparams("transformer_tiny", "num_hidden_layers=1,hidden_size=8")
    model = t2t.TransformerClassifier(hp, source_vocab_size=9, num_classes=3)
    model.quantize("int8")
    model.save(tmp_path / "model.keras")
    loaded, ids = keras.models.load_model(tmp_path / "model.keras"), np.ones((2, 3), "int32")
    np.testing.assert_array_equal(loaded({"inputs": ids}), model({"inputs": ids}))


def test_int8(model_of, tmp_path):
    """Projections and feed-forward are int8, tables and norms stay; decoding step by step is the same."""
    model = small_model(MODELS["shared"])
    floats = {v.path for v in model.weights if v.name not in ("kernel", "bias")}
    model.quantize("int8")
    assert sum(v.dtype == "int8" for v in model.weights) == 3 * 4 + 2 * 2
    assert floats == {v.path for v in model.trainable_weights if v.name != "bias"}
    logits, wanted = np.asarray(model(INPUTS)), np.asarray(model_of("shared")(INPUTS))
    np.testing.assert_allclose(logits, wanted, atol=0.03 * np.abs(wanted).max())
    assert np.abs(logits - wanted).max() > 1e-4

    source, caches = model.encode_source(SOURCE), model.empty_caches(len(SOURCE))
    last = np.zeros((len(SOURCE), 1), np.int32)
    for position in range(2):
        step, caches = model.decode_step(last, position, caches, source, None, model.step_kernels())
        np.testing.assert_allclose(step[:, 0, :23], logits[:, position], atol=0.01)
        last = TARGETS[:, position, None]

    path = tmp_path / "model.keras"
    for _ in range(2):  # a loaded model is saved as it was
        model.save(path)
        model = keras.models.load_model(path)
        np.testing.assert_array_equal(model(INPUTS), logits)
    for copy in FLOAT_COPIES:
        with pytest.raises(t2t.errors.UserError, match=r"float kernels only, .*q/kernel"):
            copy(model)


@pytest.mark.parametrize(
    ("wrapped", "shape"), [(lambda x: x, (5, 8)), (keras.layers.TimeDistributed, (3, 5, 8))]
)
def test_int8_in_layers_of_keras(wrapped, shape, tmp_path):
    """These load the layer at another path than that at which it was saved."""
    encoder = t2t.layers.TransformerEncoder(num_layers=1, num_heads=2, filter_size=12)
    model = keras.Sequential([keras.Input(shape), wrapped(encoder)])
    model.quantize("int8")
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    x = np.random.default_rng(0).normal(size=(2, *shape)).astype("float32")
    np.testing.assert_array_equal(again(x), model(x))


@pytest.mark.parametrize("key", ["layer_0/ffn/conv1", "encoder/layer_0/ffn/conv1"])
def test_int8_by_keys_of_any_version(key):
    """They begin at the layer that was saved; in earlier versions they were whole paths."""
    policies = keras.dtype_policies.DTypePolicyMap("float32", {key: "int8_from_float32"})
    sizes = {"num_layers": 1, "num_heads": 2, "filter_size": 12}
    encoder = t2t.layers.TransformerEncoder(**sizes, dtype=policies, name="encoder")
    encoder.build((None, None, 8))
    ffn = encoder.layers[0].ffn
    assert [ffn.conv1.quantization_mode, ffn.conv2.quantization_mode] == ["int8", None]


@pytest.mark.parametrize(
    ("policy", "part", "own"),
    [("mixed_bfloat16", ".*norm", "float32"), ("float32", ".*conv1", "mixed_bfloat16")],
)
def test_parts_in_another_precision_than_floatx(request, policy, part, own):
    request.addfinalizer(functools.partial(keras.config.set_floatx, "float32"))
    keras.config.set_floatx("float64")
    policies = keras.dtype_policies.DTypePolicyMap(policy)
    policies[part] = keras.dtype_policies.DTypePolicy(own)
    model = small_model(dtype=policies)
    model.compile(t2t.optimizers.create(model.hp))
    assert np.isfinite(model.fit(INPUTS, verbose=0).history["loss"][0])
    assert t2t.decoding.greedy(model, SOURCE)[0].shape[0] == len(SOURCE)


def test_lora(tmp_path):
    """Its weights alone are trained, and become part of the kernels that are saved."""
    model = small_model("learning_rate_warmup_steps=4")
    for weight in model.trainable_weights:
        weight.trainable = False
    for projection in (model.encoder.layers[0].self_attention.q, model.decoder.layers[0].ffn.conv1):
        projection.enable_lora(rank=2)
    before = {v.path: np.array(v) for v in model.weights}
    model.compile(t2t.optimizers.create(model.hp), run_eagerly=True)
    model.fit(INPUTS, epochs=3, verbose=0)
    changed = [v.path for v in model.weights if not np.array_equal(before[v.path], v)]
    assert sorted(path.rpartition("/")[2] for path in changed) == 2 * ["lora_kernel_a"] + 2 * [
        "lora_kernel_b"
    ]
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras", compile=False)
    assert {v.path for v in again.weights} == {path for path in before if "lora" not in path}
    np.testing.assert_allclose(again(INPUTS), model(INPUTS), atol=1e-6)
    for copy in FLOAT_COPIES:
        with pytest.raises(t2t.errors.UserError, match="LoRA weights are merged into the kernels"):
            copy(model)
    t2t.checkpoints.t2t_variables(again)


def test_functional_wiring(model_of):
    model = model_of("shared")
    source, targets = (keras.Input((None,), dtype="int32") for _ in range(2))
    logits = model({"inputs": source, "targets": targets})
    assert logits.shape == (None, None, 23) and logits.dtype == "float32"
    wired = keras.Model([source, targets], keras.ops.argmax(logits, -1))
    np.testing.assert_array_equal(wired([SOURCE, TARGETS]), np.asarray(model(INPUTS)).argmax(-1))


def test_dropout_sites_of_a_step():
    """Every sub-layer, every attention, every feed-forward and both inputs drop out, once each."""
    calls = []

    def keep_all(shape, rate):
        calls.append((len(shape), rate, int(shape[1]) == 1))
        return tf.ones(shape, tf.bool)

    model = small_model(
        "num_encoder_layers=1,num_decoder_layers=2,layer_prepostprocess_dropout=0.1,"
        "attention_dropout=0.2,relu_dropout=0.3,layer_prepostprocess_dropout_broadcast_dims=1"
    )
    with t2t.layers.keep_mask_scope(keep_all):
        model(INPUTS)
        assert not calls  # in training only
        model(INPUTS, training=True)
    sublayers, attentions, networks = 2 + 2 * 3, 1 + 2 * 2, 1 + 2
    assert calls.count((3, 0.1, True)) == sublayers
    assert calls.count((3, 0.1, False)) == 2  # where no axis is shared
    assert calls.count((4, 0.2, False)) == attentions
    assert calls.count((3, 0.3, False)) == networks  # of one matrix
    assert len(calls) == sublayers + 2 + attentions + networks
    with t2t.layers.keep_mask_scope(lambda shape, rate: tf.zeros(shape, tf.bool)):
        found = [model(INPUTS, training=True), model.encode(SOURCE, training=True)]
        found += [model.encode(SOURCE, training=True, segments=SOURCE, position=SOURCE)]
    for output in found:  # nothing is left, of positions neither
        assert np.ptp(output, axis=(0, 1)).max() == 0
