"""Summaries: the problem, and ROUGE by hand."""

import sys

import pytest
import tensorflow_datasets as tfds

from t2t_keras import data, registry
from t2t_keras.errors import UserError
from t2t_keras.metrics.bleu import rouge

REFERENCE = "The cat sat on the mat."


def test_stories_and_highlights_are_lines(tmp_path, monkeypatch):
    class Source:
        def __init__(self, name, tmp_dir, languages, splits, escaped):
            assert {*languages} <= {*tfds.builder(name, data_dir=tmp_path).info.features}

        def pairs(self, split):
            yield "A story.\nOf two lines.", "One highlight.\nTwo highlights."

    monkeypatch.setattr(data.tfds, "TfdsSource", Source)
    problem = registry.problem("summarize_cnn_dailymail32k")
    assert list(problem.generate_samples(tmp_path, tmp_path, "dev")) == [
        {"inputs": "A story. Of two lines.", "targets": "One highlight. Two highlights."}
    ]
    assert [split["shards"] for split in problem.dataset_splits] == [100, 10, 10]
    assert problem.vocab_filename == "vocab.summarize_cnn_dailymail32k.32768.subwords"


def test_rouge_is_that_by_hand():
    """The words of "the cats sat" are all there, stemmed: precision 1, recall 3 of 6, and 2 of 5 pairs."""
    pytest.importorskip("rouge_score")
    by_hand = {"rouge1": 200 / 3, "rouge2": 400 / 7, "rougeL": 200 / 3}
    assert rouge([[REFERENCE]], ["the cats sat"]) == pytest.approx(by_hand)
    several = iter(["nothing", REFERENCE])
    assert rouge(iter([several]), iter(["the cats sat"])) == pytest.approx(by_hand)
    half = {name: figure / 2 for name, figure in by_hand.items()}
    assert rouge([[REFERENCE]] * 2, ["the cats sat", "no"]) == pytest.approx(half)


def test_rouge_tells_what_it_lacks(monkeypatch):
    for given in ([[REFERENCE]], [[REFERENCE], []]):
        with pytest.raises(UserError, match=f"reference for each summary, got {len(given)} and 2"):
            rouge(given, ["a", "b"])
    monkeypatch.setitem(sys.modules, "rouge_score.rouge_scorer", None)
    with pytest.raises(UserError, match=r"pip install 't2t-keras\[rouge\]'"):
        rouge([[REFERENCE]], ["a"])
