"""Export to CTranslate2, an inference engine for CPU and GPU without TensorFlow.

Use `t2t_keras.serving.CTranslate2Translator` to translate with such an export.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from t2t_keras.errors import UserError, explained, require_one_of
from t2t_keras.files import atomic_write, locked_name, writing
from t2t_keras.ids import PAD_ID, RESERVED_TOKENS
from t2t_keras.layers.sublayers import SINUSOIDS, timing_signal
from t2t_keras.model_kinds import CLASSIFICATION
from t2t_keras.serving.ctranslate2 import ENCODERS, ENCODERS_FILE, import_ctranslate2
from t2t_keras.text.encoders import require_vocabulary, tokens
from t2t_keras.transformer import Transformer

_NORMS = (("n", "a"), ("", "an"))  # what it has before and after a sub-layer
POSITIONS = 2048
"""Rows of the position table that CTranslate2 stores; it rejects longer sequences."""


def export_ctranslate2(
    model, encoders: Mapping[str, Any], directory: str, quantization: str | None = None
) -> None:
    """Writes a CTranslate2 model with its text encoders.

    The network computes the same logits: positions start at 0, sines first; the first step gets a zero
    vector; padding embeds to zero. CTranslate2's search and scores differ from T2T's; see
    `t2t_keras.serving.CTranslate2Translator`, which chooses by T2T's scores.

    Args:
        model: a `Transformer`.
        encoders: "inputs" and "targets" text encoders; see `Problem.get_feature_encoders`.
        directory: the output directory; must be absent or empty, and not the current one.
        quantization: CTranslate2's name of the type of the weights, such as "int8"; default: float32.

    Raises:
        UserError: the package `ctranslate2` is missing; a setting, an encoder or the quantization is not
            supported; a vocabulary has more tokens than the model; or the directory cannot be written.
    """
    _check_model(model)
    import_ctranslate2()
    from ctranslate2.specs import model_spec, transformer_spec

    if quantization is not None:
        require_one_of("quantization", quantization, model_spec.ACCEPTED_MODEL_TYPES)
    require_vocabulary(model, {side: e.vocab_size for side, e in encoders.items()})
    for side, encoder in encoders.items():
        if type(encoder) not in ENCODERS.values():
            raise UserError(
                f"the encoder of the {side} is a {type(encoder).__name__}, which cannot be stored; "
                f"allowed: {', '.join(cls.__name__ for cls in ENCODERS.values())}."
            )
    spec = _spec(model, encoders, transformer_spec)
    spec.validate()
    with explained(f"quantization {quantization!r}", RuntimeError):  # bfloat16 needs PyTorch
        spec.optimize(quantization)
    target = Path(directory)
    with writing(directory):
        # It gets replaced, and a shell in it would be in a directory that is gone.
        if target.exists() and target.samefile(Path.cwd()):
            raise UserError(f"{directory} is the current directory: name another for the export.")
        target.parent.mkdir(parents=True, exist_ok=True)
    with writing(directory), locked_name(target), atomic_write(target, locked=True) as partial:
        if target.is_dir() and any(target.iterdir()):
            raise UserError(f"{directory} is not empty: give a new directory, or empty it.")
        partial.mkdir(parents=True)
        spec.save(str(partial))
        text: dict[str, Any] = {"positions": None if _relative(model.hp) else _rows(model.hp)}
        for side in ("inputs", "targets"):
            encoder = encoders[side]
            kind = next(name for name, cls in ENCODERS.items() if type(encoder) is cls)
            text[side] = {"kind": kind}
            if kind != "bytes":
                text[side]["file"] = f"{side}.{kind}"
                encoder.store_to_file(partial / text[side]["file"])
            if kind == "tokens":
                text[side]["replace_oov"] = encoder.replace_oov
        (partial / ENCODERS_FILE).write_text(json.dumps(text, indent=2) + "\n", encoding="utf-8")


def _check_model(model) -> None:
    """Raises UserError for settings that CTranslate2 does not support."""
    if model.members[0] is not model:
        raise UserError("CTranslate2 does not support ensembles: export one checkpoint.")
    if not model.has_memory:
        kind = "classifier" if model.kind == CLASSIFICATION else "language model"
        raise UserError(
            "the CTranslate2 export needs a model with an encoder and a decoder, and this is a "
            f"{kind}: export a SavedModel instead."
        )
    hp, hidden = model.hp, model.hp.hidden_size
    norms = f"{hp.layer_preprocess_sequence} with {hp.layer_postprocess_sequence}"
    of_norms = "the pair of layer_preprocess_sequence and layer_postprocess_sequence: only "
    of_positions = "relative and absolute positions together: only pos=none with "
    of_heads = f"a hidden_size that is not a multiple of num_heads={hp.num_heads}"
    wider = f"greater than hidden_size={hidden}"
    keys, values = hp.attention_key_channels, hp.attention_value_channels
    is_ours = type(model) is Transformer
    layers = [*model.encoder.layers, *model.decoder.layers] if is_ours else []
    own = {layer.ffn.conv1.activation for layer in layers} - {keras.activations.linear}
    refused = [
        (not is_ours, "a model of your own", type(model).__name__),
        (any(v.dtype == "int8" for v in model.variables), "quantized weights", "int8"),
        (own, "an activation of your own", "one in conv1"),
        (_norms(hp) not in _NORMS, f"{of_norms}n with da, or none with dan", norms),
        (model.prepends, "prepend_mode", hp.prepend_mode),
        (hp.proximity_bias, "proximity_bias", True),
        (hp.unidirectional_encoder, "unidirectional_encoder", True),
        (_relative(hp) and hp.pos, f"{of_positions}dot_product_relative", f"pos={hp.pos}"),
        (hidden % hp.num_heads, of_heads, hidden),
        (keys > hidden, f"attention_key_channels {wider}", keys),
        (values > hidden, f"attention_value_channels {wider}", values),
        (not model.encoder.layers, "an encoder without layers", 0),
        (not model.decoder.layers, "a decoder without layers", 0),
    ]
    for condition, what, got in refused:
        if condition:
            raise UserError(f"CTranslate2 does not support {what}; got {got}: export a SavedModel.")


def _norms(hp) -> tuple[str, str]:
    """Returns the pre- and post-process sequences without dropout, which has no effect in inference."""
    sequences = (hp.layer_preprocess_sequence, hp.layer_postprocess_sequence)
    before, after = (s.replace("none", "").replace("d", "") for s in sequences)
    return before, after


def _relative(hp) -> bool:
    return hp.self_attention_type == "dot_product_relative"


def _rows(hp) -> int:
    return max(POSITIONS, hp.max_length) if hp.pos == "emb" else POSITIONS


def _spec(model, encoders: Mapping[str, Any], specs):
    """Returns CTranslate2's specification of the model, with its weights."""
    hp = model.hp
    settings = {"num_heads": hp.num_heads, "relative_position": _relative(hp)}
    settings["pre_norm"] = _norms(hp)[0] == "n"
    spec = specs.TransformerSpec(
        specs.TransformerEncoderSpec(len(model.encoder.layers), **settings),
        specs.TransformerDecoderSpec(len(model.decoder.layers), **settings),
    )
    spec.decoder.start_from_zero_embedding = True
    source, target, softmax = _embeddings(model)
    spec.encoder.embeddings[0].weight = source
    spec.decoder.embeddings.weight = target
    spec.decoder.projection.weight = softmax
    scaled = hp.multiply_embedding_mode == "sqrt_depth"
    spec.encoder.scale_embeddings = spec.decoder.scale_embeddings = scaled
    if not _relative(hp):
        space = _target_space(model)
        spec.encoder.position_encodings.encodings = _positions(hp, model.source_position) + space
        spec.decoder.position_encodings.encodings = _positions(hp, model.target_position)
    _fill_stack(spec.encoder, model.encoder, hp)
    _fill_stack(spec.decoder, model.decoder, hp)

    spec.register_source_vocabulary(tokens(encoders["inputs"], len(source)))
    spec.register_target_vocabulary(tokens(encoders["targets"], len(softmax)))
    config = spec.config
    pad, config.eos_token = RESERVED_TOKENS
    config.bos_token = config.decoder_start_token = config.unk_token = pad
    config.add_source_eos = True
    config.layer_norm_epsilon = hp.norm_epsilon
    return spec


def _embeddings(model) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the tables [V, D] of source, target and softmax.

    The padding row is zero in the first two, which are looked up by id."""
    source, target, softmax = (_array(e.table) for e in model.embeddings)
    source[PAD_ID] = target[PAD_ID] = 0.0
    if _relative(model.hp):  # added here, because there is no position table to add it to
        scaled = model.hp.multiply_embedding_mode == "sqrt_depth"
        source += _target_space(model) / (model.hp.hidden_size**0.5 if scaled else 1.0)
    return source, target, softmax


def _target_space(model) -> np.ndarray:
    """Returns the target-space embedding [D], which is added to every source position."""
    if not model.hp.use_target_space_embedding:
        return np.zeros(model.hp.hidden_size, np.float32)
    return _array(model.target_space_table)[model.target_space_id]


def _positions(hp, position) -> np.ndarray:
    """Returns the position encodings [rows, D]; zeros if the model has none."""
    rows = _rows(hp)
    if hp.pos in SINUSOIDS:
        return _array(timing_signal(rows, hp.hidden_size, kind=hp.pos))
    table = np.zeros((rows, hp.hidden_size), np.float32)
    if position is not None:
        table[: hp.max_length] = _array(position.table)
    return table


def _fill_stack(spec, stack, hp) -> None:
    side = "preprocess" if _norms(hp)[0] == "n" else "postprocess"
    norms = [(spec, stack.last_preprocess)]
    for layer_spec, layer in zip(spec.layer, stack.layers, strict=True):
        for name in layer.sublayers:
            part = getattr(layer_spec, "attention" if name == "encdec_attention" else name)
            norms.append((part, getattr(layer, f"{name}_{side}")))
            if name != "ffn":
                _fill_attention(part, getattr(layer, name), own=name == "self_attention")
                continue
            pairs = ((part.linear_0, layer.ffn.conv1), (part.linear_1, layer.ffn.conv2))
            for linear, dense in pairs:
                linear.weight = _array(dense.kernel).T
                linear.bias = _array(dense.bias)
    for part, process in norms:
        if process.layer_norm is not None:
            part.layer_norm.gamma = _array(process.layer_norm.gamma)
            part.layer_norm.beta = _array(process.layer_norm.beta)


def _fill_attention(spec, attention, own: bool) -> None:
    heads = attention.num_heads
    size = attention.output_transform.units // heads  # CTranslate2's head size: D/H
    q, k, v = (
        _widened(_array(dense.kernel), heads, size).T
        for dense in (attention.q, attention.k, attention.v)
    )
    output = _widened(_array(attention.output_transform.kernel).T, heads, size)
    joined = [np.concatenate([q, k, v])] if own else [q, np.concatenate([k, v])]
    for linear, weight in zip(spec.linear, [*joined, output], strict=True):
        linear.weight = weight
    spec.queries_scale = np.float32(attention.key_scale)
    if attention.max_relative_position:
        spec.relative_position_keys = _widened(_array(attention.relative_keys), 1, size)
        spec.relative_position_values = _widened(_array(attention.relative_values), 1, size)


def _widened(matrix: np.ndarray, heads: int, size: int) -> np.ndarray:
    """[N, H*C] -> [N, H*size]: pads each head with zeros, which do not change any product."""
    by_head = matrix.reshape(len(matrix), heads, -1)
    return np.pad(by_head, [(0, 0), (0, 0), (0, size - by_head.shape[2])]).reshape(len(matrix), -1)


def _array(tensor) -> np.ndarray:
    """Returns a float32 copy, since CTranslate2 quantizes in place."""
    return np.array(ops.convert_to_numpy(tensor), np.float32)
