"""The Transformer: embeddings, encoder, decoder and softmax, built from one settings object.

Without a source it is a decoder-only language model; `classifier.py` has the encoder alone.
"""

from __future__ import annotations

import functools
from collections import UserList
from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops

from t2t_keras import layers
from t2t_keras.errors import UserError
from t2t_keras.ids import PAD_ID
from t2t_keras.layers.masks import distances, prefix_bias
from t2t_keras.losses import TokenFit
from t2t_keras.model_kinds import CLASSIFICATION, LANGUAGE_MODEL, TRANSLATION
from t2t_keras.network_settings import check_settings, kernel_initializer, stack_keywords
from t2t_keras.precision import cache_of, dtype_config, in_8_bits, kernels_in_blocks, policy_of
from t2t_keras.settings import HParams, recorded_settings
from t2t_keras.shape import grown, in_blocks, shape_of, take

__all__ = ["Transformer"]

PACKING = ("inputs_segmentation", "inputs_position", "targets_segmentation", "targets_position")
"""The features of packed rows besides "inputs" and "targets", by T2T's names."""

TARGET_SPACES = 32
"""Rows of the target-space table, fixed in T2T."""


@keras.saving.register_keras_serializable("t2t_keras")
class Transformer(TokenFit):
    """T2T's `transformer` model: source ids and target ids in, next-token logits out.

    If it is compiled without a loss, `fit` trains it on T2T's loss (`losses.TokenFit`).

    Args:
        hp: the settings; `settings.py` lists those that the network reads.
        source_vocab_size: number of source token ids; None makes a language model, which has neither
            encoder nor encoder-decoder attention and takes {"targets"} only.
        target_vocab_size: number of target token ids, V before rounding up to `vocab_divisor`.
        target_space_id: row of the target-space table added to the source (T2T's `SpaceID`);
            T2T's translation problems leave it at 0.
        remat: True recomputes the activations inside each layer in the backward pass (gradient
            checkpointing; see `layers.Stack`).
        dtype: the Keras policy; by default that of `hp.activation_dtype`: "mixed_bfloat16", "mixed_float16"
            or, for "float32", Keras's global policy.

    Call arguments:
        inputs: {"inputs": [B, S] int32, "targets": [B, T] int32}; 0 is padding. The logits at position t
            depend on the targets before t. Packed rows, which hold several pairs (`data.records.pack`), come
            with the features `PACKING`, int32; a pair attends only to itself. But as in T2T, the targets of a
            row are shifted as a whole: without spacing between pairs, the first target of a pair sees the end
            of sentence before it, whereas that of a row's first pair (and of decoding) sees a zero vector.
            With `hp.prepend_mode`, the decoder reads inputs, a 0 and targets as one sequence.
        cache: a `DecoderCache` from `decode_step`, for one step of a search: {"targets": [B, K]} are
            the tokens chosen last, the logits [B, K, V] those of the next one. A subclass that overrides
            `call` passes it on to `super().call`.
        return_attention_weights: also return {"encoder", "decoder", "encdec"}, each a list with
            one [B, H, query, key] float32 tensor per layer.

    Returns:
        Logits [B, T, V] float32; in training with prepend_inputs_masked_attention those of the whole
        sequence, [B, S + 1 + T, V], all of which enter the loss. `labels` returns their ids.

    Attributes:
        kind: what the model does; see `model_kinds`.
        num_logits: the target vocabulary, rounded up to `vocab_divisor`.
        prepends: True if the decoder reads the inputs before the targets (T2T's `prepend_mode`).
        has_encoder, has_memory: True if inputs go through an encoder, and the decoder attends to it.
        keys_need_positions: True if attention counts positions, so that no earlier key may be removed.
        has_target_space: True if a row of the target-space table is added to the encoder's input.

    Raises:
        UserError: a setting, a vocabulary size or the target space is not supported.
    """

    classifies = False
    """True if `kind` is "classification", which the class says before there is a model."""

    # The classes of the parts, for a subclass to set.
    encoder_class: Any = layers.TransformerEncoder
    decoder_class: Any = layers.TransformerDecoder
    position_class: Any = layers.PositionEncoding

    # The parts, None if absent. (Defaults in the class would hide the submodules of PyTorch.)
    source_embedding: Any
    target_embedding: Any
    source_position: Any
    target_position: Any
    encoder: Any
    decoder: Any

    def __init__(
        self,
        hp: HParams,
        *,
        source_vocab_size: int | None,
        target_vocab_size: int,
        target_space_id: int = 0,
        remat: bool = False,
        **kwargs: Any,
    ):
        check_settings(hp)
        kwargs.setdefault("dtype", policy_of(hp.activation_dtype))
        # Each layer casts only what it needs, such as a few rows of an embedding table.
        super().__init__(autocast=False, **kwargs)
        for side, size in (("source", source_vocab_size), ("target", target_vocab_size)):
            if size is not None and size < 2:
                raise UserError(f"{side}_vocab_size must be 2 or more (ids 0 and 1), got {size}.")
        if not 0 <= target_space_id < TARGET_SPACES:
            raise UserError(
                f"target_space_id must be from 0 to {TARGET_SPACES - 1}, got {target_space_id}."
            )
        if hp.prepend_mode != "none" and source_vocab_size != target_vocab_size:
            raise UserError(
                f"prepend_mode={hp.prepend_mode} needs one vocabulary for inputs and targets, got sizes "
                f"{source_vocab_size} and {target_vocab_size}: set it to none."
            )
        self.hp = hp
        self.source_vocab_size, self.target_vocab_size = source_vocab_size, target_vocab_size
        self.num_logits = target_vocab_size + -target_vocab_size % hp.vocab_divisor  # rounded up
        self.target_space_id, self.remat = target_space_id, remat
        self.has_encoder = source_vocab_size is not None
        self.kind = TRANSLATION if self.has_encoder else LANGUAGE_MODEL
        if self.classifies:
            self.kind = CLASSIFICATION
        self.prepends = hp.prepend_mode != "none"
        self._learns_inputs = hp.prepend_mode == "prepend_inputs_masked_attention"
        self.has_memory = self.has_encoder and not self.classifies
        self.has_target_space = hp.use_target_space_embedding and self.has_encoder
        self.source_embedding = self.source_position = self.encoder = None
        self.target_embedding = self.target_position = self.decoder = self.softmax = None
        self._make_parts()
        self.build()

    @classmethod
    def of_sizes(cls, hp: HParams, source_size: int | None, target_size: int, **kwargs: Any):
        """Returns the model for vocabulary sizes of inputs (None: no inputs) and targets."""
        return cls(hp, source_vocab_size=source_size, target_vocab_size=target_size, **kwargs)

    def _make_parts(self):
        hp, has_targets, common = self.hp, self.kind != CLASSIFICATION, {"dtype": self.dtype_policy}
        embedding = functools.partial(
            layers.SharedEmbedding,
            hidden_size=hp.hidden_size,
            scale_by_sqrt_depth=hp.multiply_embedding_mode == "sqrt_depth",
            **common,
        )
        target_size = self.num_logits
        source_size = self.source_vocab_size or target_size
        source_size += -source_size % hp.vocab_divisor
        same_size = has_targets and source_size == target_size
        share_all = hp.shared_embedding_and_softmax_weights and same_size
        # Keep the order of all parts: the seeds of the initial weights depend on it.
        if share_all or (hp.shared_embedding and same_size):
            self.target_embedding = embedding(vocab_size=target_size, name="shared_embedding")
            self.source_embedding = self.target_embedding if self.has_encoder else None
        else:
            if self.has_encoder:
                self.source_embedding = embedding(vocab_size=source_size, name="source_embedding")
            if has_targets:
                self.target_embedding = embedding(vocab_size=target_size, name="target_embedding")
        if share_all:
            self.softmax = self.target_embedding
        elif has_targets:
            self.softmax = embedding(vocab_size=target_size, name="softmax")
        encoder, decoder = stack_keywords(hp)
        own = {**common, "remat": self.remat}
        if self.has_encoder:
            self.encoder = self.encoder_class(**encoder, **own, name="encoder")
        if has_targets:
            self.decoder = self.decoder_class(**decoder, **own, name="decoder")
        sides = ["source"] * self.has_encoder + ["target"] * has_targets
        for side in sides:
            name, rate = f"{side}_dropout", hp.layer_prepostprocess_dropout
            setattr(self, name, layers.Dropout(rate, **common, name=name))
        for side in sides if hp.pos else ():
            position = self.position_class(
                kind=hp.pos,
                max_length=hp.max_length,
                initializer=kernel_initializer(hp),
                **common,
                name=f"{side}_position",
            )
            setattr(self, position.name, position)

    def build(self, input_shape=None):
        ids, hidden = (None, None), (None, None, self.hp.hidden_size)
        three = (self.source_embedding, self.target_embedding, self.softmax)
        for embedding, shape in zip(three, (ids, ids, hidden), strict=True):
            if embedding is not None and not embedding.built:
                embedding.build(shape)
        if self.has_target_space:
            self.target_space_table = self.add_weight(
                shape=(TARGET_SPACES, self.hp.hidden_size),
                initializer=kernel_initializer(self.hp),
                name="target_space_embedding",
            )
        for position in (self.source_position, self.target_position):
            if position is not None:
                position.build(hidden)
        if self.has_encoder:
            self.encoder.build(hidden)
        if self.kind != CLASSIFICATION:
            self.decoder.build(hidden, hidden if self.has_encoder else None)
            self.keys_need_positions = self.decoder.needs_positions

    @property
    def layers(self):
        # For `summary`, which would show rows without shape or weights.
        return [layer for layer in super().layers if not isinstance(layer, layers.Dropout)]

    @property
    def embeddings(self) -> tuple[Any, ...]:
        """Source embedding, target embedding and softmax, if present; shared ones are one object."""
        three = (self.source_embedding, self.target_embedding, self.softmax)
        return tuple(embedding for embedding in three if embedding is not None)

    @property
    def members(self) -> Sequence[Transformer]:
        """The model itself; those of an `Ensemble` are several."""
        return UserList([self])  # Keras's loading walks through lists and would not come back

    def call(self, inputs, training=False, return_attention_weights=False, cache=None):
        if cache is not None:
            return self.decode(inputs["targets"], cache=cache)
        self.require_features(inputs)
        packed = is_packed(inputs)
        source_segments, source_position, target_segments, target_position = (
            inputs.get(name) if packed else None for name in PACKING
        )
        memory, source_mask, encoder_weights = None, None, list[Any]()
        targets, prepended = inputs["targets"], dict[str, Any]()
        how = {"training": training, "return_attention_weights": return_attention_weights}
        if self.prepends:
            if packed:
                raise UserError("prepend_mode does not support packed pairs: set it to none.")
            targets, prepended = self._prepended(inputs["inputs"], targets)
            target_position = prepended.pop("position")
            if training and self._learns_inputs:
                del prepended["skipped"]
        if self.has_encoder:
            source_mask = inputs["inputs"] != PAD_ID
            memory = self.encode(
                inputs["inputs"], segments=source_segments, position=source_position, **how
            )
            if return_attention_weights:
                memory, encoder_weights = memory
        logits = self.decode(
            targets,
            memory,
            source_mask=source_mask,
            segments=target_segments,
            source_segments=source_segments,
            position=target_position,
            **prepended,
            **how,
        )
        if not return_attention_weights:
            return logits
        logits, decoder, encdec = logits
        return logits, {"encoder": encoder_weights, "decoder": decoder, "encdec": encdec}

    def encode(
        self, source, training=False, return_attention_weights=False, segments=None, position=None
    ):
        """Encodes source ids [B, S]: memory [B, S, D] (and the encoder's attention weights).

        Args:
            segments: [B, S] int32, for packed rows: the pair's number, 0 at padding.
            position: [B, S] int32, for packed rows: the position within the pair.
        """
        x = self.source_embedding(source)  # [B, S, D]
        if self.has_target_space:
            x = x + ops.cast(self.target_space_table[self.target_space_id], x.dtype)
        if self.source_position is not None:
            x = self.source_position(x, position=position)
        x = self.source_dropout(x, training=training)
        real = source != PAD_ID if segments is None else segments != 0
        if self.hp.unidirectional_encoder:  # earlier padding and pairs are visible, as in T2T
            mask = layers.AttentionMask(causal=True, nonpadding=real)
        else:
            mask = layers.AttentionMask(keys=real, segments=segments, nonpadding=real)
        how = {"training": training, "return_attention_weights": return_attention_weights}
        return self.encoder(x, attention_mask=mask, **how)

    def decode(
        self,
        targets,
        memory=None,
        source_mask=None,
        training=False,
        return_attention_weights=False,
        segments=None,
        source_segments=None,
        position=None,
        bias=None,
        skipped=None,
        cache=None,
    ):
        """Decodes target ids [B, T] with memory [B, S, D]: logits [B, T, V] float32.

        Args:
            memory: None in a language model.
            source_mask: boolean [B, S], True where the source has a token.
            return_attention_weights: return (logits, decoder weights, encoder-decoder weights).
            segments: [B, T] int32, for packed rows: the pair's number, 0 at padding.
            source_segments: [B, S] int32, the same for the source; required with segments.
            position: [B, T] int32, the position of each target if not 0, 1, 2...: in packed rows, its
                position within the pair.
            bias: self-attention bias [B, 1, T, T] that replaces the causal mask.
            skipped: number of leading positions to return no logits for.
            cache: see `call`.
        """
        if cache is not None:
            step, source, softmax = cache.model
            x = self.target_embedding(targets)  # [B, K, D]
            hypotheses, hidden = targets.shape[1], x.shape[-1]
            if self.target_position is not None:
                place = {"start": step}
                if self.prepends:
                    place = {"position": ops.repeat(source["start"] + step, hypotheses)[:, None]}
                # All hypotheses are at the same position, so K is folded into the batch: [B*K, 1, D]
                x = self.target_position(ops.reshape(x, (-1, 1, hidden)), **place)
                x = ops.reshape(x, (-1, hypotheses, hidden))
            x = self.decoder(x, source.get("memory"), cache=cache)
            logits = self.softmax.logits(ops.reshape(x, (-1, hidden)), softmax)  # [B*K, V]
            return ops.cast(ops.reshape(logits, (-1, hypotheses, logits.shape[-1])), "float32")
        if memory is not None and (segments is None) != (source_segments is None):
            raise ValueError("segments and source_segments must be given together, got one.")
        x = ops.pad(self.target_embedding(targets), [[0, 0], [1, 0], [0, 0]])
        x = x[:, :-1]  # position t has the token before it
        if self.target_position is not None:
            x = self.target_position(x, position=position)
        x = self.target_dropout(x, training=training)
        x = self.decoder(
            x,
            memory,
            attention_mask=layers.AttentionMask(segments=segments, causal=bias is None, bias=bias),
            memory_attention_mask=layers.AttentionMask(
                keys=source_mask, segments=segments, key_segments=source_segments
            ),
            training=training,
            return_attention_weights=return_attention_weights,
        )
        x, *weights = x if return_attention_weights else (x,)
        if skipped is not None:
            x = x[:, skipped:]
        if self.leaves_out_logits:
            return x
        logits = ops.cast(self.softmax.logits(x), "float32")
        return (logits, *weights) if weights else logits

    @property
    def joins_loss(self) -> bool:
        own, methods = (
            (k.call, k.decode, k.loss_sums, k.right_sums, k.compute_loss, k.compute_metrics)
            for k in (Transformer, type(self))
        )
        is_own = methods == own and type(self.softmax) is layers.SharedEmbedding
        # It has a float32 table. Gradients in float16 need their scale, which the loss gets only later.
        return is_own and self.compute_dtype != "float16" and self.variable_dtype == "float32"

    def _prepended(self, source, targets):
        """Joins source ids [B, S], a 0 and target ids into [B, S + 1 + T]; adds arguments of `decode`.

        The source's padding moves to the front, so that distances between tokens are T2T's. The last
        padding zero, or the shift of the targets, is the zero vector that T2T's sequence begins with.
        """
        batch, length = shape_of(source)
        padding = ops.sum(ops.cast(source == PAD_ID, "int32"), axis=1)  # [B]
        first = ops.expand_dims(padding, 1)  # where the sequence begins
        source = take(source, ops.mod(ops.arange(length, dtype="int32") - first, length))
        separator = ops.zeros((batch, 1), "int32")
        ids = ops.concatenate([ops.cast(ids, "int32") for ids in (source, separator, targets)], 1)
        total = shape_of(ids)[1]
        full = self.hp.prepend_mode == "prepend_inputs_full_attention"
        return ids, {
            "position": ops.maximum(ops.arange(total, dtype="int32") - first, 0),
            "bias": prefix_bias(padding, length + 1, total, full),
            "skipped": length + 1,
        }

    def labels(self, batch, training=False):
        """Returns the label of each logit of a call, 0 where the loss ignores it: [B, T]."""
        if training and self._learns_inputs:
            return self._prepended(batch["inputs"], batch["targets"])[0]
        if "targets" not in batch:
            raise UserError('labels are missing: call fit(batch, labels), or add "targets".')
        return batch["targets"]

    def encode_source(self, source):
        """Encodes source ids [B, S] once, for all steps and hypotheses of `decode_step`.

        Returns:
            "memory" [B, S, D], "memory_bias" [B, 1, 1, S], and "memory_caches": a list with each layer's
            keys and values {"k", "v"} [B, H, S, C]. Empty for a language model. With `hp.prepend_mode`
            also "prefix_caches" and "prefix_bias", the same for self-attention with S + 1 positions, and
            "start" [B], the position of the first target.
        """
        if self.kind == LANGUAGE_MODEL:
            return {}
        memory = self.encode(source)
        encoded = {
            "memory": memory,
            "memory_caches": self.decoder.memory_caches(memory),
            "memory_bias": layers.mask_bias(source != PAD_ID),
        }
        if self.prepends:
            ids, how = self._prepended(source, source[:, :0])
            batch, length = shape_of(ids)
            # One step processes all positions, as if each were a hypothesis.
            cache = layers.DecoderCache(
                self.empty_caches(batch),
                memory=encoded["memory_caches"],
                memory_bias=encoded["memory_bias"],
                bias=how["bias"],
                distance=distances(length, length),
            )
            x = ops.pad(self.target_embedding(ids), [[0, 0], [1, 0], [0, 0]])[:, :-1]
            if self.target_position is not None:
                x = self.target_position(x, position=how["position"])
            self.decoder(x, memory, cache=cache)
            encoded["prefix_caches"] = cache.kept
            encoded["prefix_bias"] = how["bias"][:, :, -1:]
            encoded["start"] = how["position"][:, -1] + 1
        return encoded

    def empty_caches(self, batch):
        """Returns the caches for the first `decode_step` of B sentences."""
        return [layer.self_attention.empty_cache(batch) for layer in self.decoder.layers]

    def step_kernels(self, few_rows: bool = False):
        """Returns the matrices that every `decode_step` multiplies with, cast and joined once.

        With `few_rows`, for one sentence of up to `shape.FEW_ROWS` hypotheses, they are in blocks; see
        `shape.in_blocks`.
        """
        kind = type(self)
        plain = kind.call is Transformer.call and kind.decode is Transformer.decode
        # A subclass that changes the logits expects V of them.
        softmax = self.softmax.matrix(layers.BLOCK if plain else 1)
        attentions = [layer.self_attention for layer in self.decoder.layers]
        joint = [attention.joint_kernel() for attention in attentions]
        if not few_rows:
            return {"softmax": softmax, "self_attention": joint, "dense": []}
        if type(self.softmax).logits is layers.SharedEmbedding.logits:
            softmax |= {"kernel": in_blocks(softmax["kernel"])}
        for i, attention in enumerate(attentions):
            if joint[i] is not None and type(attention).call is layers.MultiHeadAttention.call:
                joint[i] = in_blocks(joint[i])
        # Keras builds a user's layer at its first call.
        dense = [in_blocks(each.kernel) if each.built else None for each in self._step_dense()]
        return {"softmax": softmax, "self_attention": joint, "dense": dense}

    def _step_dense(self) -> list[keras.layers.Dense]:
        """Returns the `Dense` layers that a step calls besides the projections of `joint_kernel`."""
        return [
            part
            for layer in self.decoder.layers
            for sublayer in vars(layer).values()
            if isinstance(sublayer, keras.layers.Layer)
            for name, part in vars(sublayer).items()
            if type(part) is keras.layers.Dense and not part.quantization_mode
            if part.compute_dtype == "float32" and name not in ("k", "v")
        ]

    @property
    def kernel_variables(self) -> list[keras.Variable]:
        """The variables from which `step_kernels` is made."""
        attentions = [layer.self_attention for layer in self.decoder.layers]
        parts = (self.softmax, *attentions, *self._step_dense())
        return [variable for part in parts for variable in part.variables]

    def decode_step(
        self, last_ids, position, caches, source, visible=None, kernels=None, append=grown
    ):
        """Decodes one position of K hypotheses per sentence, with cached keys and values.

        A hypothesis that continues another one needs no copy of its keys and values: `visible` says
        which keys it sees. Keys that no hypothesis sees may be removed, unless `keys_need_positions`.

        Args:
            last_ids: [B, K] int32, the tokens chosen last; 0 at the first position.
            position: scalar int32, number of tokens chosen so far.
            caches: from `empty_caches` or the previous step: a list with each layer's {"k", "v"}
                [B, H, S, C], to which every step adds K positions.
            source: from `encode_source`.
            visible: [B, K, S + K] bool, the keys that each hypothesis sees, with those of this step at
                the end. None: hypothesis k has always continued hypothesis k.
            kernels: from `step_kernels`.
            append: `shape.grown`; or `shape.written` for caches of a fixed size, where `visible` is
                [B, K, S] and hides later keys.

        Returns:
            Logits [B, K, V] float32, and the caches including this step. With `kernels`, V is rounded
            up to a multiple of 64 (see `SharedEmbedding.matrix`), unless a subclass changes the logits.

        Raises:
            UserError: a subclass of model, decoder or layer overrides `call` without the argument `cache`.
        """
        hypotheses = last_ids.shape[1]
        if visible is None and (hypotheses > 1 or self.prepends):
            visible = ops.tile(ops.eye(hypotheses, dtype="bool")[None], (1, 1, position + 1))
        bias = None if visible is None else layers.mask_bias(visible)
        distance = None
        if self.keys_need_positions:
            # Each position has K keys: -t, ..., -t, 1 - t, ..., -1, 0, ..., 0 for every query.
            keys = position + 1 if visible is None else shape_of(visible)[2] // hypotheses
            distance = ops.repeat(ops.arange(keys, dtype="int32") - position, hypotheses)
        if self.prepends:
            # The prefix's keys come before the others: [B, 1, K, P + S + K]
            batch, *_, length = shape_of(source["prefix_bias"])
            prefix = ops.broadcast_to(source["prefix_bias"], (batch, 1, hypotheses, length))
            bias = ops.broadcast_to(bias, (batch, 1, hypotheses, shape_of(bias)[3]))
            bias = ops.concatenate([prefix, bias], -1)
            if distance is not None:
                before = ops.arange(-length, 0, dtype="int32") - position
                distance = ops.concatenate([before, distance])
        if distance is not None:
            distance = ops.tile(distance[None], (hypotheses, 1))  # [K, P + S + K]
        cache = layers.DecoderCache(
            caches,
            memory=source.get("memory_caches"),
            memory_bias=source.get("memory_bias"),
            bias=bias,
            distance=distance,
            joint_kernels=kernels and kernels["self_attention"],
            append=lambda kept, new: append(kept, new, position),
            prefix=source.get("prefix_caches"),
            model=(position, source, kernels and kernels["softmax"]),
        )
        for layer in (self, self.decoder):
            cache.require(layer)
        with kernels_in_blocks(self._step_dense(), kernels["dense"] if kernels else []):
            return self({"targets": last_ids}, cache=cache), cache.kept

    @property
    def features(self) -> tuple[str, ...]:
        """The features that a call needs."""
        return ("targets",) if self.kind == LANGUAGE_MODEL else ("inputs", "targets")

    def require_features(self, inputs) -> None:
        """Raises UserError unless a call gets a dict of the features that it needs, [B, length] each."""
        got = ", ".join(map(repr, inputs)) if isinstance(inputs, Mapping) else type(inputs).__name__
        if isinstance(inputs, Mapping) and {*inputs} >= {*self.features}:
            shapes = [tuple(inputs[name].shape) for name in self.features]
            are_rows = all(len(shape) == 2 for shape in shapes)
            if are_rows and len({n for n, _ in shapes if isinstance(n, int)} - {1}) < 2:
                return
            got = f"shapes {', '.join(map(str, shapes))}"
        wanted = ", ".join(f'"{name}": ids' for name in self.features)
        advice = "; for outputs, call t2t_keras.decoding.beam_search" * ("targets" in self.features)
        raise UserError(
            f"{type(self).__name__} takes a dict, {{{wanted}}}, int32 [B, length] each, got {got}{advice}."
        )

    def description(self) -> dict[str, Any]:
        """Returns the name of the set and the vocabulary sizes, as `run.json` records them."""
        source = {"source_vocab_size": self.source_vocab_size} if self.source_vocab_size else {}
        return {
            "hparams_set": self.hp.set_name,
            **source,
            "target_vocab_size": self.target_vocab_size,
            "target_space_id": self.target_space_id,
        }

    def make_predict_function(self, force=False):
        return super().make_predict_function(force or self._is_other("_predictions"))

    def make_test_function(self, force=False):
        return super().make_test_function(force or self._is_other("_tests"))

    def _is_other(self, graph: str) -> bool:
        # A graph keeps the values of 8-bit weights: if they have changed, it is made again.
        if not in_8_bits(self):
            return False
        kept = cache_of(self, graph)
        changed, kept["made"] = not kept, True
        return changed

    def export(
        self, filepath, format="tf_saved_model", verbose=None, input_signature=None, **kwargs
    ):
        """Keras's `export` of the logits, by default for ids of any shape.

        `t2t_keras.export` makes a SavedModel that decodes text.
        """
        if input_signature is None:
            ids = functools.partial(keras.InputSpec, shape=(None, None), dtype="int32")
            input_signature = [{name: ids(name=name) for name in self.features}]
        return super().export(filepath, format, verbose, input_signature, **kwargs)

    def get_config(self):
        return {
            "name": self.name,
            "dtype": dtype_config(self),
            "hp": self.hp.to_dict(),
            "hparams_set": self.hp.set_name,
            "source_vocab_size": self.source_vocab_size,
            "target_vocab_size": self.target_vocab_size,
            "target_space_id": self.target_space_id,
            "remat": self.remat,
        }

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        config["dtype"] = keras.dtype_policies.deserialize(config["dtype"])
        hp = recorded_settings(config.pop("hp"), config.pop("hparams_set", ""))
        return cls(hp, **config)


def is_packed(features) -> bool:
    """Returns True if a batch holds packed rows; only some of their features are a `UserError`."""
    needed = [name for name in PACKING if name.partition("_")[0] in features]
    absent = [name for name in needed if name not in features]
    if absent and len(absent) < len(needed):
        raise UserError(f"A packed batch must have {', '.join(needed)}; got no {absent[0]}.")
    return not absent
