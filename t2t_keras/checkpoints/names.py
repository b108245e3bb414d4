"""T2T's names of variables; no other module knows them."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from t2t_keras.errors import UserError
from t2t_keras.model_kinds import CLASSIFICATION
from t2t_keras.precision import require_float_kernels

SCOPE = "transformer"
CLASSIFIER_SCOPE = "transformer_encoder"
PREPROCESS = "layer_prepostprocess"
"""T2T's scope of the pre-processing of a sub-layer; that of post-processing is `layer_postprocess`."""

_SLOT = re.compile(
    r"/((Adam|AdamW|Adafactor|Momentum|YellowFin|Adagrad|Ftrl|RMSProp)(_\d+)?"
    r"|ExponentialMovingAverage|slot_\w+|v[rc]?|m|iter)$"
)


def scope(model) -> str:
    """Returns the first part of T2T's names of a model's variables."""
    return CLASSIFIER_SCOPE if model.kind == CLASSIFICATION else SCOPE


def model_of(names: Iterable[str]) -> str:
    """Returns T2T's name of the model whose variables a checkpoint has."""
    is_classifier = any(name.startswith(CLASSIFIER_SCOPE + "/") for name in names)
    return CLASSIFIER_SCOPE if is_classifier else SCOPE


def is_weight(name: str, names: Container[str]) -> bool:
    """Returns True if this is a weight of a T2T model that is supported here.

    Args:
        name: the name of a variable.
        names: those of its checkpoint. A slot's begins with that of its variable; without one, it is
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
    if len(model.members) > 1:
        raise UserError(
            f"a checkpoint holds one model, got {len(model.members)}: name one of them."
        )
    require_float_kernels(model, "T2T's checkpoints hold")
    named = dict(_embedding_variables(model))
    body = f"{scope(model)}/body"
    if model.has_target_space:
        named[f"{body}/target_space_embedding/kernel"] = model.target_space_table
    if model.hp.pos == "emb":
        for side, position in (
            ("inputs", model.source_position),
            ("targets", model.target_position),
        ):
            if position is not None:
                named[f"{body}/{side}_positional_embedding"] = position.table
    if model.kind == CLASSIFICATION:
        modality = f"class_label_modality_{model.class_layer.units}_{model.hp.hidden_size}"
        dense = f"{CLASSIFIER_SCOPE}/{modality}/{modality}/dense"
        named[f"{dense}/kernel"] = model.class_layer.kernel
        named[f"{dense}/bias"] = model.class_layer.bias
    for stack_name, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        if stack is None:
            continue
        for i, layer in enumerate(stack.layers):
            named.update(_layer_variables(f"{body}/{stack_name}/layer_{i}", layer))
        named.update(_norm_variables(f"{body}/{stack_name}/{PREPROCESS}", stack.last_preprocess))
    known = {id(variable) for variable in named.values()}
    for variable in model.weights:
        if id(variable) not in known:
            named[f"{body}/{variable.path.partition('/')[2]}"] = variable
    return named


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


def _embedding_variables(model) -> Iterator[tuple[str, Any]]:
    softmax_shared = model.kind != CLASSIFICATION and model.softmax is model.target_embedding
    embeddings_shared = softmax_shared or model.hp.shared_embedding
    for embedding, name in (
        (model.source_embedding, "shared" if embeddings_shared else "input_emb"),
        (model.target_embedding, "shared" if embeddings_shared else "target_emb"),
        (model.softmax, "shared" if softmax_shared else "softmax"),
    ):
        if embedding is not None:
            modality = f"symbol_modality_{embedding.vocab_size}_{embedding.hidden_size}"
            yield f"{scope(model)}/{modality}/{name}", embedding.table


def _layer_variables(prefix: str, layer) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for sublayer in layer.sublayers:
        scope = f"{prefix}/{sublayer}"
        for process_scope, side in (
            (PREPROCESS, "preprocess"),
            ("layer_postprocess", "postprocess"),
        ):
            process = getattr(layer, f"{sublayer}_{side}")
            named.update(_norm_variables(f"{scope}/{process_scope}", process))
        if sublayer == "ffn":
            for conv in (layer.ffn.conv1, layer.ffn.conv2):
                named[f"{scope}/{conv.name}/kernel"] = conv.kernel
                named[f"{scope}/{conv.name}/bias"] = conv.bias
        else:
            named.update(
                _attention_variables(f"{scope}/multihead_attention", getattr(layer, sublayer))
            )
    return named


def _attention_variables(scope: str, attention) -> dict[str, Any]:
    named = {
        f"{scope}/{projection.name}/kernel": projection.kernel
        for projection in (attention.q, attention.k, attention.v, attention.output_transform)
    }
    if attention.max_relative_position:
        relative = f"{scope}/dot_product_attention_relative"
        named[f"{relative}/relative_positions_keys/embeddings"] = attention.relative_keys
        named[f"{relative}/relative_positions_values/embeddings"] = attention.relative_values
    return named


def _norm_variables(scope: str, process) -> dict[str, Any]:
    norm = process.layer_norm
    if norm is None:
        return {}
    return {
        f"{scope}/layer_norm/layer_norm_scale": norm.gamma,
        f"{scope}/layer_norm/layer_norm_bias": norm.beta,
    }


def is_table(name: str) -> bool:
    """Returns True if T2T stores a variable of this name split into `weights_i`."""
    return "/symbol_modality_" in name


def is_slot(name: str) -> bool:
    """Returns True if a name ends as an optimizer slot of any T2T optimizer does."""
    return _SLOT.search(name) is not None


def split_table(name: str, table: np.ndarray, shards: int) -> dict[str, np.ndarray]:
    """Splits [V, D] into T2T's shards: V // n rows each, one more in the first V % n."""
    pieces = np.array_split(table, shards)
    return {f"{name}/weights_{i}": piece for i, piece in enumerate(pieces)}
