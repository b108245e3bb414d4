"""A table of quality by beam size and alpha: one search finds what as many searches would."""

import numpy as np
import pytest
from golden import up_to_eos
from networks import small_model

from t2t_keras.decoding.search import SearchOptions, beam_search, decode

ALPHAS = (0.0, 0.6, 1.0, 2.5)
SOURCE = np.random.default_rng(1).integers(2, 23, [12, 5])


@pytest.mark.parametrize(
    ("beam_size", "options"),
    [(2, {}), (4, {"min_length": 2, "prefix": np.tile([[4, 5], [6, 0], [0, 0]], [4, 1])})],
)
def test_each_penalty_has_the_result_of_its_own_search(beam_size, options):
    overrides = "shared_embedding_and_softmax_weights=false,num_hidden_layers=1"
    model = small_model(overrides, spread=1.5, ending=1.5)
    one = SearchOptions(beam_size, extra_length=6, alphas=ALPHAS, **options)
    ids, scores = (found.numpy() for found in decode(model, SOURCE, one))
    found = [up_to_eos(ids[:, number]) for number in range(len(ALPHAS))]
    lengths = [sum(map(len, rows)) for rows in found]
    assert lengths[0] < lengths[3]  # alpha decides something
    for number, alpha in enumerate(ALPHAS):
        wanted, wanted_scores = beam_search(
            model, SOURCE, beam_size=beam_size, alpha=alpha, extra_length=6, **options
        )
        assert found[number] == up_to_eos(wanted[:, 0].numpy())
        np.testing.assert_allclose(scores[:, number], wanted_scores[:, 0], rtol=1e-5)
