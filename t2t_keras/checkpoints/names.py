"""T2T's names of variables; no other module knows them."""

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from t2t_keras.errors import UserError
from t2t_keras.model_kinds import CLASSIFICATION
from t2t_keras.precision import require_float_kernels

SCOPE = "transformer"
CLASSIFIER_SCOPE = "transformer_encoder"

_SLOT = re.compile(
    r"/((Adam|AdamW|Adafactor|Momentum|YellowFin|Adagrad|Ftrl|RMSProp)(_\d+)?"
    r"|ExponentialMovingAverage|slot_\w+|v[rc]?|m|iter)$"
)

_DENSE = {"kernel": "kernel", "bias": "bias"}
_KERNEL = {"kernel": "kernel"}
_NORM = {"layer_norm/layer_norm_scale": "gamma", "layer_norm/layer_norm_bias": "beta"}
_PROCESSES = {"preprocess": "layer_prepostprocess", "postprocess": "layer_postprocess"}
_RELATIVE = {
    "relative_positions_keys/embeddings": "relative_keys",
    "relative_positions_values/embeddings": "relative_values",
}


def model_of(names: Iterable[str]) -> str:
    """Returns T2T's name of the model whose variables a checkpoint has."""
    is_classifier = any(name.startswith(CLASSIFIER_SCOPE + "/") for name in names)
    return CLASSIFIER_SCOPE if is_classifier else SCOPE


def is_weight(name: str, names: Container[str]) -> bool:
    """Returns True if the variable `name` is a weight of a T2T model that is supported here.

    `names` are those of its checkpoint. A slot's begins with that of its variable; without one, it is
    that of a weight that a subclass added, such as `v`.
    """
    is_own = name.startswith((f"{SCOPE}/", f"{CLASSIFIER_SCOPE}/"))
    return is_own and not (is_slot(name) and name.rpartition("/")[0] in names)


def t2t_variables(model) -> dict[str, Any]:
    """Maps T2T's name of every variable of a `Transformer` to the Keras variable.

    An embedding table has the name of its scope, such as `transformer/symbol_modality_23_32/shared`;
    T2T splits it into `weights_0`, `weights_1`, ... (see `is_table`, `split_table`). Weights that a
    subclass adds are named by their path in the model, such as
    `transformer/body/encoder/layer_0/self_attention/temperature`.

    Raises:
        UserError: the model is an ensemble, quantized or has LoRA weights, which T2T's files cannot hold.
    """
    if model.members[0] is not model:
        raise UserError("a checkpoint holds one model, got an ensemble: name one of its members.")
    require_float_kernels(model, "T2T's checkpoints hold")
    named = {
        f"{scope}/{name}": variable
        for scope, layer, attributes in _layers(model)
        for name, attribute in attributes.items()
        if (variable := getattr(layer, attribute, None)) is not None
    }
    body = f"{CLASSIFIER_SCOPE if model.kind == CLASSIFICATION else SCOPE}/body"
    known = {id(variable) for variable in named.values()}
    for variable in model.weights:
        if id(variable) not in known:
            name = f"{body}/{variable.path.partition('/')[2]}"
            while name in named:  # as of both positions' weights, if made in `__init__`
                name += "_1"
            named[name] = variable
    return named


def _layers(model) -> Iterator[tuple[str, Any, dict[str, str]]]:
    """Yields T2T's scopes, the layers that have their variables, and name -> attribute of each."""
    is_classifier = model.kind == CLASSIFICATION
    scope = CLASSIFIER_SCOPE if is_classifier else SCOPE
    body = f"{scope}/body"
    softmax_shared = not is_classifier and model.softmax is model.target_embedding
    embeddings_shared = softmax_shared or model.hp.shared_embedding
    if is_classifier and model.source_embedding.vocab_size == model.class_layer.units:
        embeddings_shared |= model.hp.shared_embedding_and_softmax_weights
    for embedding, name in (
        (model.source_embedding, "shared" if embeddings_shared else "input_emb"),
        (model.target_embedding, "shared" if embeddings_shared else "target_emb"),
        (model.softmax, "shared" if softmax_shared else "softmax"),
    ):
        if embedding is not None:
            modality = f"symbol_modality_{embedding.vocab_size}_{embedding.hidden_size}"
            yield f"{scope}/{modality}", embedding, {name: "table"}
    if is_classifier:
        modality = f"class_label_modality_{model.class_layer.units}_{model.hp.hidden_size}"
        yield f"{scope}/{modality}/{modality}/dense", model.class_layer, _DENSE
    if model.has_target_space:
        yield f"{body}/target_space_embedding", model, {"kernel": "target_space_table"}
    if model.hp.pos == "emb":
        sides = (("inputs", model.source_position), ("targets", model.target_position))
        for side, position in sides:
            if position is not None:
                yield body, position, {f"{side}_positional_embedding": "table"}
    for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        if stack is None:
            continue
        norm = getattr(stack.last_preprocess, "layer_norm", None)
        yield f"{body}/{side}/layer_prepostprocess", norm, _NORM
        for number, layer in enumerate(stack.layers):
            for name in layer.sublayers:
                sublayer, place = getattr(layer, name), f"{body}/{side}/layer_{number}/{name}"
                for own, theirs in _PROCESSES.items():
                    norm = getattr(getattr(layer, f"{name}_{own}"), "layer_norm", None)
                    yield f"{place}/{theirs}", norm, _NORM
                if name == "ffn":
                    denses, variables = ["conv1", "conv2"], _DENSE
                else:
                    place, variables = f"{place}/multihead_attention", _KERNEL
                    denses = ["q", "k", "v", "output_transform"]
                    if sublayer.max_relative_position:
                        yield f"{place}/dot_product_attention_relative", sublayer, _RELATIVE
                for dense in filter(None, (getattr(sublayer, each, None) for each in denses)):
                    yield f"{place}/{dense.name}", dense, variables


def trainable_names(model) -> list[str]:
    """Returns T2T's name of each trainable variable of a `Transformer`, in order."""
    names = {id(variable): name for name, variable in t2t_variables(model).items()}
    return [names[id(variable)] for variable in model.trainable_variables]


def slot_variables(model, slots: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Maps T2T's names of an optimizer's slots to the Keras variables.

    The slots of an embedding table are named by its scope, like the table in `t2t_variables`, and T2T
    splits them along the first axis like the table.
    """
    names = trainable_names(model)
    return {
        f"training/{name}/{kind}": slot
        for kind, kind_slots in slots.items()
        for name, slot in zip(names, kind_slots, strict=True)
        if slot is not None
    }


def is_table(name: str) -> bool:
    """Returns True if T2T stores a variable of this name split into `weights_i`."""
    return "/symbol_modality_" in name


def is_slot(name: str) -> bool:
    """Returns True if a name ends as an optimizer slot of any T2T optimizer does."""
    return _SLOT.search(name) is not None


def split_table(name: str, table: np.ndarray, shards: int) -> dict[str, np.ndarray]:
    """Splits [V, D] into T2T's shards: V // n rows each, one more in the first V % n."""
    return {f"{name}/weights_{i}": rows for i, rows in enumerate(np.array_split(table, shards))}
