"""The network of `transformer_multi30k` in OpenNMT-tf, for its `--model`."""

import opennmt


def model():
    return opennmt.models.Transformer(
        opennmt.inputters.WordEmbedder(embedding_size=128),
        opennmt.inputters.WordEmbedder(embedding_size=128),
        num_layers=4,
        num_units=128,
        num_heads=4,
        ffn_inner_dim=256,
        dropout=0.3,
        attention_dropout=0.1,
        ffn_dropout=0.1,
        share_embeddings=opennmt.models.EmbeddingsSharingLevel.ALL,
    )
