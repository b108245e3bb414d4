"""The policies of a layer's parts, which `model.quantize` sets one by one, in the layer's config."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
from keras.dtype_policies import DTypePolicy, DTypePolicyMap


def dtype_config(layer: keras.layers.Layer) -> dict[str, Any]:
    """Returns "dtype" of a layer's config: its policy, or a map with those of the quantized parts."""
    policy = layer.dtype_policy
    quantized = dict(_quantized_parts(layer))
    if quantized:
        default = policy.default_policy if isinstance(policy, DTypePolicyMap) else policy
        policy = DTypePolicyMap(default.name, quantized)
    return keras.dtype_policies.serialize(policy)


def policy_of_part(layer: keras.layers.Layer, name: str) -> DTypePolicy:
    """Returns the policy of the part `name` of a layer that is being built.

    A `Dense` that has the whole map instead loses its scales when Keras 3.15 saves it.
    """
    policy = layer.dtype_policy
    return policy[f"{layer.path}/{name}"] if isinstance(policy, DTypePolicyMap) else policy


def _quantized_parts(layer) -> Iterator[tuple[str, DTypePolicy]]:
    # On PyTorch a layer is a module, whose parts are no attributes of the object.
    is_module = keras.backend.backend() == "torch"
    for part in layer.children() if is_module else vars(layer).values():
        if isinstance(part, keras.layers.Layer):
            if part.quantization_mode:
                yield part.path, part.dtype_policy
            yield from _quantized_parts(part)
