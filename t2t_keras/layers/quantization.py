"""Stores the policies of a layer's parts, which `model.quantize` sets one by one, in its config."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
from keras.dtype_policies import DTypePolicy, DTypePolicyMap


def dtype_config(layer: keras.layers.Layer) -> dict[str, Any]:
    """Returns "dtype" for a layer's config: its policy, or a map that includes its quantized parts."""
    policy = layer.dtype_policy
    quantized = dict(_quantized_parts(layer))
    if quantized:
        default = policy.default_policy if isinstance(policy, DTypePolicyMap) else policy
        policy = DTypePolicyMap(default.name, quantized)
    return keras.dtype_policies.serialize(policy)


def policy_of_part(layer: keras.layers.Layer, name: str) -> DTypePolicy:
    """Returns the policy of the part `name` of a layer that is being built.

    If a `Dense` got the whole map, it would lose its scales when Keras 3.15 saves it.
    """
    policy = layer.dtype_policy
    if not isinstance(policy, DTypePolicyMap):
        return policy
    path = f"{layer.path}/{name}"
    # A key begins below the layer whose config has the map: Keras may load that at another path.
    # (Files of earlier versions have whole paths.)
    keys = [key for key in policy if f"/{path}".endswith(f"/{key}")]
    return policy[max(keys, key=len, default=path)]


def _quantized_parts(layer) -> Iterator[tuple[str, DTypePolicy]]:
    """Yields the path of each quantized part below a layer, such as "layer_0/ffn/conv1", and its policy."""
    # On PyTorch a layer is a module, and `vars` does not hold its parts.
    is_module = keras.backend.backend() == "torch"
    for part in layer.children() if is_module else vars(layer).values():
        if isinstance(part, keras.layers.Layer):
            if part.quantization_mode:
                yield part.name, part.dtype_policy
            for path, policy in _quantized_parts(part):
                yield f"{part.name}/{path}", policy
