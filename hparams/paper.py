"""The models of "Attention Is All You Need", named after its tables, with the paper's values.

T2T's sets derive from its later base model; these derive from its first one, which is the paper's. An
update has about 25,000 source and 25,000 target tokens (section 5.1) on any number of devices:
`batch_size` is what one device computes at once, and the trainer sums as many batches as needed.
"""

from typing import Any

from t2t_keras.hparams.transformer import transformer_base_v1
from t2t_keras.registry import derive_hparams, register_hparams
from t2t_keras.settings import HParams


@register_hparams
def paper_base() -> HParams:
    """The base model (sections 3 and 5).

    Unlike the paper, T2T has sinusoids of other frequencies, and adds a learned vector, the same for all
    sentences, to every source embedding.
    """
    return transformer_base_v1().replace(
        tokens_per_update=25000, pos="timing_paper", use_target_space_embedding=False
    )


@register_hparams
def paper_base_enfr() -> HParams:
    """The base model, English to French."""
    return paper_base()


@register_hparams
def paper_big() -> HParams:
    """The big model, the last row of table 3."""
    return paper_base().replace(
        hidden_size=1024, filter_size=4096, num_heads=16, layer_prepostprocess_dropout=0.3
    )


@register_hparams
def paper_big_enfr() -> HParams:
    """The big model, English to French: dropout 0.1 (section 6.1)."""
    return paper_big().replace(layer_prepostprocess_dropout=0.1)


@register_hparams
def paper_parsing_wsj() -> HParams:
    """Four layers of width 1024 (section 6.3), for the Wall Street Journal only.

    The paper chose the dropout rates, "both attention and residual", on section 22 without stating
    them: these are from T2T's `transformer_parsing_base`. Its dropout inside the feed-forward layer is
    left out, since the paper does not mention it. Trees are longer than sentences, hence `max_length`.
    """
    return paper_parsing_semisup().replace(attention_dropout=0.2, layer_prepostprocess_dropout=0.2)


@register_hparams
def paper_parsing_semisup() -> HParams:
    """`paper_parsing_wsj` for millions of parsed sentences: both dropout rates 0.1, as in T2T's set."""
    return paper_base().replace(
        num_hidden_layers=4, hidden_size=1024, attention_dropout=0.1, max_length=512
    )


TABLE_3: dict[str, dict[str, Any]] = {
    "base": {},
    # (A) heads, with the same number of channels in total
    "a_h1": {"num_heads": 1},
    "a_h4": {"num_heads": 4},
    "a_h16": {"num_heads": 16},
    "a_h32": {"num_heads": 32},
    # (B) key channels: eight heads of 16 or 32
    "b_dk16": {"attention_key_channels": 8 * 16},
    "b_dk32": {"attention_key_channels": 8 * 32},
    # (C) size; eight heads, so that d_k and d_v are 32 at 256 and 128 at 1024
    "c_n2": {"num_hidden_layers": 2},
    "c_n4": {"num_hidden_layers": 4},
    "c_n8": {"num_hidden_layers": 8},
    "c_d256": {"hidden_size": 256},
    "c_d1024": {"hidden_size": 1024},
    "c_ff1024": {"filter_size": 1024},
    "c_ff4096": {"filter_size": 4096},
    # (D) residual dropout and label smoothing
    "d_dropout0": {"layer_prepostprocess_dropout": 0.0},
    "d_dropout2": {"layer_prepostprocess_dropout": 0.2},
    "d_smoothing0": {"label_smoothing": 0.0},
    "d_smoothing2": {"label_smoothing": 0.2},
    # (E) learned positions
    "e_learned": {"pos": "emb"},
}
"""The changes to the base model in each row of table 3 except the last, which is `paper_big`."""

for _name, _change in TABLE_3.items():
    derive_hparams(f"paper_table3_{_name}", paper_base, **_change)

paper_table3_big = derive_hparams("paper_table3_big", paper_big)
