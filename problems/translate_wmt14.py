"""WMT 2014, the data of "Attention Is All You Need", through TensorFlow Datasets."""

from __future__ import annotations

from t2t_keras.data import DatasetSplit, TfdsTranslateProblem
from t2t_keras.registry import register_problem, register_problem_alias


@register_problem
class TranslateEndeWmt14(TfdsTranslateProblem):
    """English to German: Europarl v7, Common Crawl, News Commentary v9; about 4.5 million pairs.

    Dev is newstest2013, test is newstest2014. The paper's vocabulary has about 37000 subwords.
    """

    tfds_name = "wmt14_translate/de-en"
    languages = ("en", "de")
    escaped_splits = (DatasetSplit.TEST,)
    approx_vocab_size = 37000


@register_problem
class TranslateEnfrWmt14(TfdsTranslateProblem):
    """English to French: these three, the UN corpus and the 10^9 corpus; about 41 million pairs.

    Dev is newstest2013, test is newstest2014. The paper's vocabulary has 32000 subwords.
    """

    tfds_name = "wmt14_translate/fr-en"
    languages = ("en", "fr")
    escaped_splits = (DatasetSplit.TEST,)
    approx_vocab_size = 32000


register_problem_alias("translate_ende", "translate_ende_wmt14")
register_problem_alias("translate_enfr", "translate_enfr_wmt14")
