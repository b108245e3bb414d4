"""How many parameters a Transformer has, by formula."""

from __future__ import annotations

from typing import NamedTuple

from t2t_keras.settings import HParams

_TARGET_SPACES = 32


class Parameters(NamedTuple):
    """Of each part of a network."""

    encoder: int
    decoder: int
    tables: int  # embeddings, softmax and target spaces
    positions: int  # learned ones

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self)


def count_parameters(hp: HParams, source_vocab_size: int, target_vocab_size: int) -> Parameters:
    """Counts those of the `Transformer` of these settings, without making it.

    An attention has matrices without biases, a feed-forward network has both, a normalisation has a
    scale and a bias.

    Args:
        hp: the settings; vectors of relative positions are not counted.
        source_vocab_size, target_vocab_size: as for `Transformer`.
    """
    attention, feed_forward = matrices(hp)
    feed_forward += hp.filter_size + hp.hidden_size
    before, after = (
        2 * hp.hidden_size * (sequence != "none" and "n" in sequence)
        for sequence in (hp.layer_preprocess_sequence, hp.layer_postprocess_sequence)
    )

    def stack(layers: int, attentions: int) -> int:
        norms = (attentions + 1) * (before + after)
        return layers * (attentions * attention + feed_forward + norms) + before

    return Parameters(
        encoder=stack(hp.num_encoder_layers or hp.num_hidden_layers, 1),
        decoder=stack(hp.num_decoder_layers or hp.num_hidden_layers, 2),
        tables=_tables(hp, source_vocab_size, target_vocab_size),
        positions=2 * hp.max_length * hp.hidden_size * (hp.pos == "emb"),
    )


def matrices(hp: HParams) -> tuple[int, int]:
    """Elements of the matrices of one attention and of one feed-forward network."""
    keys = hp.attention_key_channels or hp.hidden_size
    values = hp.attention_value_channels or hp.hidden_size
    return 2 * hp.hidden_size * (keys + values), 2 * hp.hidden_size * hp.filter_size


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
