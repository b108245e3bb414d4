"""Estimates the cost of a row of the paper by formula: parameters, operations, memory, hours."""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

from t2t_keras import registry
from t2t_keras.errors import UserError
from t2t_keras.paper.rows import Row
from t2t_keras.settings import HParams

REAL_SHARE = 0.75
"""Approximate share of real target tokens in `batch_size`; the rest is padding."""

TRAINING = 3
"""Operations of a training step per operation of the forward pass; the backward pass has twice as many."""


class Device(NamedTuple):
    """An accelerator."""

    name: str
    teraflops: float
    """Peak of dense matrix products, from its specification; for the P100 from the paper (section 6.1)."""
    precision: str  # data type of the peak
    memory: int  # GB


DEVICES = (
    Device("P100", 9.5, "float32", 16),
    Device("V100", 125, "float16", 32),
    Device("A100", 312, "bfloat16", 80),
    Device("H100", 989, "bfloat16", 80),
    Device("H200", 989, "bfloat16", 141),
)


@dataclasses.dataclass(frozen=True)
class Cost:
    """The cost of a training run.

    Args:
        parameters: the parameters of the model.
        source_flops, target_flops: operations of the forward pass per source and per target token.
        updates: the number of updates of the run.
        source_tokens, target_tokens: tokens per update.
        batches: batches per update on one device.
        state_bytes: memory of weights, gradients, Adam's moments and accumulated gradients.
        activation_bytes: lower bound for the memory of one batch's activations in float32.
    """

    parameters: Parameters
    source_flops: float
    target_flops: float
    updates: int
    source_tokens: int
    target_tokens: int
    batches: int
    state_bytes: float
    activation_bytes: float

    @property
    def update_flops(self) -> float:
        """Operations per update."""
        source = self.source_tokens * self.source_flops
        return TRAINING * (source + self.target_tokens * self.target_flops)

    @property
    def run_flops(self) -> float:
        """Operations of the whole run."""
        return self.updates * self.update_flops

    def hours(self, device: Device, utilization: float, devices: int = 1) -> float:
        """Returns the duration of the run.

        Args:
            device: the type of the devices.
            utilization: the share of their peak that training reaches, 0 to 1.
            devices: the number of devices.
        """
        if not 0 < utilization <= 1:
            raise UserError(f"utilization must be more than 0 and at most 1, got {utilization}.")
        return self.run_flops / (device.teraflops * 1e12 * utilization * devices) / 3600


def cost(row: Row, overrides: str = "", updates: int | None = None) -> Cost:
    """Returns the cost of a row.

    Args:
        row: the row of the paper.
        overrides: changes to its settings, in the grammar of `--hparams`.
        updates: the number of updates; default: the row's.

    Raises:
        UserError: an override is invalid.
    """
    hp = registry.hparams(row.name, overrides)
    tokens = hp.tokens_per_update or round(REAL_SHARE * hp.batch_size)
    batches = max(1, round(tokens / (REAL_SHARE * hp.batch_size)))
    parameters = count_parameters(hp, row.vocab_size, row.vocab_size)
    source, target = forward_flops(hp, row.vocab_size, row.source_length, row.target_length)
    copies = 4 + (batches > 1)  # weights, gradients, two moments; the sum of gradients
    return Cost(
        parameters=parameters,
        source_flops=source,
        target_flops=target,
        updates=row.updates if updates is None else updates,
        source_tokens=round(tokens * row.source_length / row.target_length),
        target_tokens=tokens,
        batches=batches,
        state_bytes=4.0 * copies * parameters.total,
        activation_bytes=4.0 * hp.batch_size * kept_elements(hp, row.vocab_size, row.target_length),
    )


def forward_flops(
    hp: HParams, vocab_size: int, source_length: int, target_length: int
) -> tuple[float, float]:
    """Returns the floating-point operations of the forward pass per source and per target token.

    Counts 2 per element of each weight matrix and, in attention, 2 per channel of a query and of a
    value for each key position, including masked ones. Sums, norms, softmax and table lookups are not
    counted.
    """
    attention, feed_forward = matrices(hp)
    channels = attention // (2 * hp.hidden_size)  # per hidden unit, of a key and a value
    memory = hp.hidden_size * channels  # keys and values of the source in the decoder
    encoder_layers, decoder_layers = layers(hp)
    source = encoder_layers * (attention + feed_forward + channels * source_length)
    source += decoder_layers * memory
    target = decoder_layers * (
        2 * attention - memory + feed_forward + channels * (source_length + target_length)
    )
    target += hp.hidden_size * vocab_size
    return 2.0 * source, 2.0 * target


def kept_elements(hp: HParams, vocab_size: int, length: int) -> float:
    """Returns a lower bound for the activations kept for the backward pass, per position of both sides.

    Per layer: inputs and outputs of its matrices, attention weights, inputs of norms and residuals;
    for the softmax: logits, log-probabilities and their gradient.
    """
    channels = matrices(hp)[0] // (2 * hp.hidden_size)
    weights = hp.num_heads * length
    encoder = 2 * channels + weights + hp.filter_size + 6 * hp.hidden_size
    decoder = 4 * channels + 2 * weights + hp.filter_size + 9 * hp.hidden_size
    encoder_layers, decoder_layers = layers(hp)
    return encoder_layers * encoder + decoder_layers * decoder + 3.0 * vocab_size


def describe(row: Row, price: Cost, utilization: float) -> list[str]:
    """Returns the cost as lines of text."""
    p = price.parameters
    millions = f"{p.total / 1e6:.1f} million at a vocabulary of {row.vocab_size:,}"
    if row.paper_parameters:
        off = 100 * (p.total / 1e6 / row.paper_parameters - 1)
        millions += f" (paper: {row.paper_parameters:g}, {off:+.1f} %)"
    lines = [
        f"{row.name} ({row.place})",
        f"parameters   {millions}",
        f"             encoder {p.encoder / 1e6:.1f}, decoder {p.decoder / 1e6:.1f}, "
        f"tables {(p.tables + p.positions) / 1e6:.1f}",
        f"operations   {power(TRAINING * price.source_flops)} per source token and "
        f"{power(TRAINING * price.target_flops)} per target token, forward and backward, in sentences "
        f"of {row.source_length} and {row.target_length} tokens",
        f"             {power(price.update_flops)} per update of {price.source_tokens:,} and "
        f"{price.target_tokens:,} tokens, {power(price.run_flops)} per run of {price.updates:,}",
    ]
    if row.paper_flops:
        lines.append(
            f"             {power(row.paper_flops)} by the paper's estimate, hours x 8 GPUs x 9.5 "
            f"TFLOP/s, of which ours is {100 * price.run_flops / row.paper_flops:.0f} %"
        )
    lines += [
        f"memory       {price.state_bytes / 1e9:.1f} GB for weights, gradients and moments; "
        f"{price.activation_bytes / 1e9:.1f} GB at least for a batch in float32, "
        f"{price.batches} of which make an update on one device",
        f"hours, if training reaches {100 * utilization:g} % of the peak",
        "  device   TFLOP/s             GB   1 device   8 devices",
    ]
    lines += [
        f"  {d.name:6} {d.teraflops:9,.1f} {d.precision:8} {d.memory:6} "
        f"{_hours(price.hours(d, utilization)):>10} {_hours(price.hours(d, utilization, 8)):>11}"
        for d in DEVICES
    ]
    return lines


def power(number: float) -> str:
    """Formats a large number like the paper: 3.3e18."""
    return f"{number:.1e}".replace("e+", "e")


def _hours(hours: float) -> str:
    digits = max(0, 1 - math.floor(math.log10(hours))) if 0 < hours < 10 else 0
    return f"{hours:,.{digits}f}"


# Parameters

_TARGET_SPACES = 32


class Parameters(NamedTuple):
    """The number of parameters by part of the network."""

    encoder: int
    decoder: int
    tables: int  # embedding, softmax, target space
    positions: int  # learned

    @property
    def total(self) -> int:
        return sum(self)


def count_parameters(hp: HParams, source_vocab_size: int, target_vocab_size: int) -> Parameters:
    """Counts the parameters of a `Transformer` without building it.

    Attention has no biases, feed-forward layers have; normalisation has a scale and a bias.

    Args:
        hp: the settings; relative position embeddings are not counted.
        source_vocab_size, target_vocab_size: see `Transformer`.
    """
    attention, feed_forward = matrices(hp)
    feed_forward += hp.filter_size + hp.hidden_size
    before, after = (
        2 * hp.hidden_size * (sequence != "none" and "n" in sequence)
        for sequence in (hp.layer_preprocess_sequence, hp.layer_postprocess_sequence)
    )

    encoder_layers, decoder_layers = layers(hp)

    def stack(count: int, attentions: int) -> int:
        norms = (attentions + 1) * (before + after)
        return count * (attentions * attention + feed_forward + norms) + before

    return Parameters(
        encoder=stack(encoder_layers, 1),
        decoder=stack(decoder_layers, 2),
        tables=_tables(hp, source_vocab_size, target_vocab_size),
        positions=2 * hp.max_length * hp.hidden_size * (hp.pos == "emb"),
    )


def matrices(hp: HParams) -> tuple[int, int]:
    """Returns the number of weights of one attention and of one feed-forward layer, without biases."""
    keys = hp.attention_key_channels or hp.hidden_size
    values = hp.attention_value_channels or hp.hidden_size
    return 2 * hp.hidden_size * (keys + values), 2 * hp.hidden_size * hp.filter_size


def layers(hp: HParams) -> tuple[int, int]:
    """Returns the number of layers of the encoder and of the decoder."""
    same = hp.num_hidden_layers
    return hp.num_encoder_layers or same, hp.num_decoder_layers or same


def _tables(hp: HParams, source_size: int, target_size: int) -> int:
    source_size, target_size = (n + -n % hp.vocab_divisor for n in (source_size, target_size))
    same = source_size == target_size
    if hp.shared_embedding_and_softmax_weights and same:
        rows = source_size
    elif hp.shared_embedding and same:
        rows = 2 * source_size
    else:
        rows = source_size + 2 * target_size
    return (rows + hp.use_target_space_embedding * _TARGET_SPACES) * hp.hidden_size
