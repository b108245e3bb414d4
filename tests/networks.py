"""Small models with random weights, and decoding by the whole network again at every token."""

import functools

import numpy as np
import numpy_transformer

import t2t_keras as t2t

SOURCE = np.array([[5, 9, 3, 7, 6, 1], [4, 1, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0], [0] * 6], np.int32)
"""Source ids, with an empty sentence and one of nothing but padding."""

SMALL = "hidden_size=16,filter_size=24,num_heads=2,num_hidden_layers=1,symbol_modality_num_shards=3"
UNSHARED = "shared_embedding_and_softmax_weights=false"
RELATIVE = "self_attention_type=dot_product_relative,max_relative_position="
TABLE = "transformer/symbol_modality_23_16/shared"
KERNEL = "transformer/body/encoder/layer_0/ffn/conv1/kernel"
ENCODER = t2t.text.TokenTextEncoder(vocab_list=[f"w{n}" for n in range(2, 23)])
ENCODERS = {"inputs": ENCODER, "targets": ENCODER}


def small_model(
    overrides="",
    source_vocab=23,
    target_vocab=23,
    model_class=t2t.Transformer,
    seed=0,
    spread=1.0,
    ending=0.0,
    padding=0.0,
    name="small",  # TensorFlow makes, and keeps, a kernel for each new name of a variable
    **kwargs,
):
    """A model of `transformer_base` with `SMALL` and `overrides`, all of whose variables are random.

    `spread` is a factor on what separates the logits: a wide one gives likely and unlikely tokens.
    `ending` is how much likelier the end of sentence is made, `padding` the same of id 0.
    """
    hp = t2t.registry.hparams("transformer_base", SMALL).override(overrides)
    kwargs |= {"source_vocab_size": source_vocab, "target_vocab_size": target_vocab}
    model = model_class(hp, name=name, **kwargs)
    random = np.random.default_rng(seed)
    for variable in model.trainable_variables:
        shape = tuple(variable.shape)
        deviation = shape[-1] ** -0.5 if len(shape) > 1 else 0.3
        centre = 1.0 if variable.name == "gamma" else 0.0
        variable.assign(centre + deviation * random.normal(size=shape))
    norm = model.decoder.last_preprocess.layer_norm
    if norm is not None:
        norm.gamma.assign(norm.gamma * spread)
        table = model.softmax.table
        norm.beta.assign(norm.beta + ending * table[1] + padding * table[0])
    return model


@functools.cache
def search_model(overrides=""):
    """A small model whose searches give varied tokens, some sentences with an end, some without.

    Not to be changed: the tests share it, and the graphs that TensorFlow has made for it.
    """
    return small_model(f"{UNSHARED},{overrides}", spread=3.0, ending=1.0)


@functools.cache
def padding_model():
    """A model that chooses id 0 among its tokens, before and without an end. Not to be changed."""
    return small_model(UNSHARED, spread=3.0, ending=1.0, padding=2.0, seed=2)


def numpy_logits(model, source, targets, packing=None):
    """Logits [B, T, V] of the same variables, by the numpy Transformer."""
    return numpy_transformer.logits(
        t2t.checkpoints.t2t_variables(model),
        model.hp,
        np.asarray(source),
        np.asarray(targets),
        model.source_vocab_size,
        model.target_vocab_size,
        model.target_space_id,
        packing,
    )


def log_probabilities(model, source, prefixes):
    """log p of the next token after `prefixes` [B, t], by the numpy Transformer: [B, V]."""
    targets = np.pad(np.asarray(prefixes, int).reshape(len(source), -1), [(0, 0), (0, 1)])
    return np.log(numpy_transformer.softmax(numpy_logits(model, source, targets)[:, -1]))


def gradients(model, batch):
    """The gradient of the mean loss over tokens by each trainable variable."""
    import tensorflow as tf

    with tf.GradientTape() as tape:
        logits, smoothing = model(batch, training=True), model.hp.label_smoothing
        loss, tokens = t2t.losses.padded_cross_entropy(logits, batch["targets"], smoothing)
        mean = loss / tokens
    values = [variable.value for variable in model.trainable_variables]
    return [tf.convert_to_tensor(gradient).numpy() for gradient in tape.gradient(mean, values)]
