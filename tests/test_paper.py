"""The paper's sets: their settings, and their parameters against the page's and the paper's own numbers."""

import functools
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import keras
import pytest

from t2t_keras import Transformer, registry
from t2t_keras.schedules import learning_rate_schedule

PAGE = (Path(__file__).parents[1] / "docs/paper.md").read_text("utf-8")
ROW = re.compile(r"\| `(paper_\w+)` \|.*\| ?(\d*) \| ([\d.]+) \|")
# Millions of parameters: the paper's, or 0, and those here.
ROWS = {name: (int(printed or 0), float(ours)) for name, printed, ours in ROW.findall(PAGE)}
NAMES = list(ROWS)
VOCABULARIES = dict.fromkeys(("base_enfr", "big_enfr"), 32_000)
VOCABULARIES |= {"parsing_wsj": 2**14, "parsing_semisup": 2**15}
BEYOND_4_PERCENT = {"paper_table3_c_n2", "paper_table3_c_d256", "paper_table3_c_ff1024"}


@functools.cache
def parameters(name, vocab_size):
    """Counts the parameters of a set's model in millions, without memory for them.

    Keras keeps variables that have no values yet, to fill them later: in this thread only.
    """

    def count():
        sizes = {"source_vocab_size": vocab_size, "target_vocab_size": vocab_size}
        with keras.StatelessScope(initialize_variables=False):
            return Transformer(registry.hparams(name), **sizes).count_params() / 1e6

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(count).result()


def test_the_page_has_every_set_and_known_problems():
    assert {name for name in registry.list_hparams() if name.startswith("paper_")} == set(NAMES)
    for name in set(re.findall(r"`((?:translate|parsing)_\w+)`", PAGE)):
        assert registry.problem(name).name == name


@pytest.mark.parametrize("name", NAMES)
def test_parameters_are_those_of_the_page(name):
    """They are within 4 % of the paper's but for three rows, which no vocabulary of 37,000 explains.

    One of 41,100 explains all counts but the big model's, within what was rounded off.
    """
    printed, ours = ROWS[name]
    counted = parameters(name, VOCABULARIES.get(name.removeprefix("paper_"), 37_000))
    assert round(counted, 1) == ours
    if printed:
        assert (abs(counted / printed - 1) < 0.04) == (name not in BEYOND_4_PERCENT)
        assert "big" in name or round(parameters(name, 41_100)) == printed


@pytest.mark.parametrize(("name", "updates"), [("paper_base", 100_000), ("paper_big", 300_000)])
def test_operations_are_those_of_the_page(name, updates):
    operations = 6 * 1e6 * parameters(name, 37_000) * 25_000 * updates
    assert f"{operations:.1e} for `{name}`".replace("e+", "e") in PAGE


# Settings


@pytest.mark.parametrize("name", NAMES)
def test_every_row_has_what_the_paper_says_of_all(name):
    hp = registry.hparams(name)
    assert (hp.layer_preprocess_sequence, hp.layer_postprocess_sequence) == ("none", "dan")
    assert (hp.optimizer, hp.optimizer_adam_beta1, hp.optimizer_adam_beta2) == ("adam", 0.9, 0.98)
    assert hp.optimizer_adam_epsilon == 1e-9
    assert hp.learning_rate_warmup_steps == 4000
    assert hp.tokens_per_update == 25_000
    assert hp.relu_dropout == 0
    of_attention = {"paper_parsing_wsj": 0.2, "paper_parsing_semisup": 0.1}
    assert hp.attention_dropout == of_attention.get(name, 0)
    assert hp.pos == ("emb" if name == "paper_table3_e_learned" else "timing_paper")
    assert hp.shared_embedding_and_softmax_weights
    if "smoothing" not in name:
        assert hp.label_smoothing == 0.1


@pytest.mark.parametrize("step", [1, 100, 4000, 4001, 100_000])
@pytest.mark.parametrize("name", ["paper_base", "paper_big"])
def test_learning_rate_is_formula_3(name, step):
    hp = registry.hparams(name)
    expected = hp.hidden_size**-0.5 * min(step**-0.5, step * 4000**-1.5)
    assert float(learning_rate_schedule(hp)(step - 1)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("name", "heads", "keys", "values"),
    [
        ("base", 8, 64, 64),
        *[(f"a_h{h}", h, 512 // h, 512 // h) for h in (1, 4, 16, 32)],
        ("b_dk16", 8, 16, 64),
        ("b_dk32", 8, 32, 64),
        ("c_d256", 8, 32, 32),
        ("c_d1024", 8, 128, 128),
        ("big", 16, 64, 64),
    ],
)
def test_heads_have_the_channels_of_table_3(name, heads, keys, values):
    hp = registry.hparams(f"paper_table3_{name}")
    assert hp.num_heads == heads
    assert (hp.attention_key_channels or hp.hidden_size) == heads * keys
    assert (hp.attention_value_channels or hp.hidden_size) == heads * values


def test_what_differs_between_rows():
    assert registry.hparams("paper_big").layer_prepostprocess_dropout == 0.3
    assert registry.hparams("paper_big_enfr").layer_prepostprocess_dropout == 0.1
    for paper_set, t2t_set in (("wsj", "base"), ("semisup", "big")):
        ours = registry.hparams(f"paper_parsing_{paper_set}")
        t2ts = registry.hparams(f"transformer_parsing_{t2t_set}")
        assert ours.attention_dropout == t2ts.attention_dropout
        assert ours.layer_prepostprocess_dropout == t2ts.layer_prepostprocess_dropout
    assert registry.hparams("paper_table3_d_dropout0").layer_prepostprocess_dropout == 0
    assert registry.hparams("paper_table3_d_smoothing2").label_smoothing == 0.2
    parsing = registry.hparams("paper_parsing_semisup")
    assert (parsing.num_hidden_layers, parsing.hidden_size, parsing.filter_size) == (4, 1024, 2048)
