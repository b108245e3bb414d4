"""T2T's WMT translation problems, by language pair, and the paper's WMT 2014 problems."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from t2t_keras.data import DatasetSplit, TfdsTranslateProblem, TranslateProblem, VocabType
from t2t_keras.data.problem import with_shards
from t2t_keras.data.text_problem import PathLike
from t2t_keras.data.translate import TwoVocabularyProblem
from t2t_keras.registry import derive_problem, register_problem, register_problem_alias
from t2t_keras.text.lines import warn_once

_STATMT = "http://www.statmt.org"
_WMT13 = f"{_STATMT}/wmt13/training-parallel"
_WMT17 = "http://data.statmt.org/wmt17/translation-task"
_WMT18 = "http://data.statmt.org/wmt18/translation-task"
_OPUS = "http://opus.nlpl.eu/download.php?f="
_S3 = "https://s3.amazonaws.com"


class CorpusProblem(TranslateProblem):
    """A translation problem whose sources are class attributes."""

    train: Sequence[list] = ()  # sources for training
    additional_training_datasets: Sequence[list] = []  # more of them, of a subclass (T2T's name)
    dev: Sequence[list] = ()  # sources for evaluation
    vocabulary_of: type[TranslateProblem] | None = None  # whose vocabulary to use; None: its own

    def source_data_files(self, split: str) -> list:
        train = [*self.train, *self.additional_training_datasets]
        return train if split == DatasetSplit.TRAIN else [*self.dev]

    @property
    def use_vocab_from_other_problem(self) -> Any:  # type: ignore[override]
        return self.vocabulary_of() if self.vocabulary_of else None


# Variants of a problem on the same corpus


def packed(base: type[CorpusProblem]) -> type[CorpusProblem]:
    """Registers a packed variant: several pairs in a row of 256 ids, with the same vocabulary."""
    return derive_problem(base, f"{base.__name__}Packed", packed_length=256, vocabulary_of=base)


def small(base: type[CorpusProblem]) -> type[CorpusProblem]:
    """Registers the variant of a 32 K problem with 8 K subwords."""
    return derive_problem(base, base.__name__.replace("32k", "8k"), approx_vocab_size=2**13)


def characters(base: type[CorpusProblem]) -> type[CorpusProblem]:
    """Registers the variant of a subword problem with bytes."""
    name = base.__name__.removesuffix("32k") + "Characters"
    return derive_problem(base, name, vocab_type=VocabType.CHARACTER)


# Sources that several language pairs share, by the language that is not English, such as "de"


def _pair(url: str, stem: str, language: str) -> list:
    """Returns the source of two files in an archive; their names end in their language."""
    stem = stem.format(language)
    return [url.format(language), (f"{stem}.en", f"{stem}.{language}")]


common_crawl = partial(_pair, f"{_WMT13}-commoncrawl.tgz", "commoncrawl.{}-en")
"""Common Crawl (WMT 2013)."""

europarl_v7 = partial(_pair, f"{_WMT13}-europarl-v7.tgz", "training/europarl-v7.{}-en")
"""Europarl v7 (WMT 2013)."""

_NC9 = f"{_STATMT}/wmt14/training-parallel-nc-v9.tgz"
news_commentary_v9 = partial(_pair, _NC9, "training/news-commentary-v9.{}-en")
"""News Commentary v9 (WMT 2014)."""

_NC13 = "training-parallel-nc-v13"
news_commentary_v13 = partial(_pair, f"{_WMT18}/{_NC13}.tgz", _NC13 + "/news-commentary-v13.{}-en")
"""News Commentary v13 (WMT 2018)."""

un_2000 = partial(_pair, f"{_WMT13}-un.tgz", "un/undoc.2000.{}-en")
"""United Nations documents (WMT 2013)."""

newstest2013 = partial(_pair, f"{_WMT17}/dev.tgz", "dev/newstest2013")
"""newstest2013: 3,000 sentences."""

_PARACRAWL = "paracrawl-release1.en-{}.zipporah0-dedup-clean"
_paracrawl1 = partial(
    _pair, f"{_S3}/web-language-models/paracrawl/release1/{_PARACRAWL}.tgz", _PARACRAWL
)

# English to German

_ENDE = [news_commentary_v13("de"), common_crawl("de"), europarl_v7("de")]
_ENDE_PARACRAWL = [
    f"{_S3}/web-language-models/paracrawl/release4/en-de.bicleaner07.tmx.gz",
    ("tmx", "en-de.bicleaner07.tmx.gz"),
]


@register_problem
class TranslateEndeWmt32k(CorpusProblem):
    """WMT 2018 without ParaCrawl: 4.6 million pairs; close to the paper's (which had News Commentary v9)."""

    train, dev = _ENDE, [newstest2013("de")]


TranslateEndeWmt32kPacked = packed(TranslateEndeWmt32k)
TranslateEndeWmt8k = small(TranslateEndeWmt32k)
TranslateEndeWmt8kPacked = packed(TranslateEndeWmt8k)
TranslateEndeWmtCharacters = characters(TranslateEndeWmt32k)


@register_problem
class TranslateEndePc32k(TranslateEndeWmt32k):
    """ParaCrawl, with the vocabulary of WMT."""

    train = [_ENDE_PARACRAWL]
    vocabulary_of = TranslateEndeWmt32k


@register_problem
class TranslateEndeWmtPc32k(TranslateEndePc32k):
    """WMT and ParaCrawl, with the vocabulary of WMT."""

    train = [*_ENDE, _ENDE_PARACRAWL]


# English to French

_GIGA = "giga-fren.release2.fixed"
_BASELINE = f"{_S3}/opennmt-trainingdata/baseline-1M-enfr.tgz"


@register_problem
class TranslateEnfrWmt32k(CorpusProblem):
    """WMT 2014: about 40 million pairs."""

    train = [
        common_crawl("fr"),
        europarl_v7("fr"),
        news_commentary_v9("fr"),
        [f"{_STATMT}/wmt10/training-giga-fren.tar", (f"{_GIGA}.en.gz", f"{_GIGA}.fr.gz")],
        un_2000("fr"),
    ]
    dev = [newstest2013("fr")]


TranslateEnfrWmt32kPacked = packed(TranslateEnfrWmt32k)
TranslateEnfrWmt8k = small(TranslateEnfrWmt32k)
TranslateEnfrWmtCharacters = characters(TranslateEnfrWmt32k)


@register_problem
class TranslateEnfrWmtSmall32k(CorpusProblem):
    """A million pairs of WMT 2014, with a separate dev set."""

    train = [_pair(_BASELINE, "baseline-1M-enfr/baseline-1M_train", "fr")]
    dev = [_pair(_BASELINE, "baseline-1M-enfr/baseline-1M_valid", "fr")]


TranslateEnfrWmtSmall8k = small(TranslateEnfrWmtSmall32k)
TranslateEnfrWmtSmallCharacters = characters(TranslateEnfrWmtSmall32k)

# The paper's English to German and French data, from TensorFlow Datasets


@register_problem
class TranslateEndeWmt14(TfdsTranslateProblem):
    """English to German: Europarl v7, Common Crawl, News Commentary v9; about 4.5 million pairs.

    Dev is newstest2013, test is newstest2014. The paper's vocabulary has about 37000 subwords.
    """

    tfds_name = "wmt14_translate/de-en"
    languages = ("en", "de")
    escaped_splits = (DatasetSplit.TEST,)
    approx_vocab_size = 37000


# With the paper's type of vocabulary: byte pairs shared by both languages.
TranslateEndeWmt14Bpe37k = derive_problem(
    TranslateEndeWmt14,
    "TranslateEndeWmt14Bpe37k",
    vocab_type=VocabType.SENTENCEPIECE,
    sentencepiece_model="bpe",
)


@register_problem
class TranslateEnfrWmt14(TfdsTranslateProblem):
    """English to French: Europarl v7, Common Crawl, News Commentary v9, UN, 10^9; about 41 million pairs.

    Dev is newstest2013, test is newstest2014. The paper's vocabulary has 32000 subwords.
    """

    tfds_name = "wmt14_translate/fr-en"
    languages = ("en", "fr")
    escaped_splits = (DatasetSplit.TEST,)
    approx_vocab_size = 32000


register_problem_alias("translate_ende", "translate_ende_wmt14")
register_problem_alias("translate_enfr", "translate_enfr_wmt14")

# English to Spanish


@register_problem
class TranslateEnesWmt32k(CorpusProblem):
    """WMT 2013 and ParaCrawl."""

    train = [common_crawl("es"), europarl_v7("es"), un_2000("es"), _paracrawl1("es")]
    dev = [newstest2013("es")]


TranslateEnesWmt32kPacked = packed(TranslateEnesWmt32k)
TranslateEnesWmt8k = small(TranslateEnesWmt32k)
TranslateEnesWmt8kPacked = packed(TranslateEnesWmt8k)
TranslateEnesWmtCharacters = characters(TranslateEnesWmt32k)

# English to Czech

_CZENG = [
    "https://lindat.mff.cuni.cz/repository/xmlui/bitstream/handle/11234/1-1458/"
    "data-plaintext-format.tar",
    ("tsv", 3, 2, "data.plaintext-format/*train.gz"),
]
_ENCS = [news_commentary_v13("cs"), common_crawl("cs"), europarl_v7("cs")]


@register_problem
class TranslateEncsWmt32k(CorpusProblem):
    """CzEng 1.6 and WMT: about 60 million pairs.

    Its vocabulary is built from a million characters of all text together and a million of each file.
    """

    train, dev = [_CZENG, *_ENCS], [newstest2013("cs")]

    def vocab_data_files(self) -> list:
        all_pairs = [f"{self.name}-compiled-train.lang{n}" for n in (1, 2)]  # as T2T names them
        return [[_CZENG[0], all_pairs], *_ENCS]


TranslateEncsWmtCharacters = characters(TranslateEncsWmt32k)

# English to Estonian and Romanian


@register_problem
class TranslateEnetWmt32k(CorpusProblem):
    """WMT 2018: 2.2 million pairs."""

    train = [
        _pair(f"{_WMT18}/training-parallel-ep-v8.tgz", "training/europarl-v8.et-en", "et"),
        _paracrawl1("et"),
        _pair(f"{_WMT18}/rapid2016.tgz", "rapid2016.en-et", "et"),
    ]
    dev = [
        [
            "https://github.com/stefan-it/nmt-en-et/raw/master/data/newsdev2018-enet.tar.gz",
            ("newsdev2018-enet-src.en", "newsdev2018-enet-ref.et"),
        ]
    ]


TranslateEnetWmtCharacters = characters(TranslateEnetWmt32k)


@register_problem
class TranslateEnroWmt32k(CorpusProblem):
    """WMT 2016: 614,000 pairs."""

    train = [
        _pair(f"{_STATMT}/europarl/v7/ro-en.tgz", "europarl-v7.ro-en", "ro"),
        _pair(f"{_OPUS}SETIMES/v2/moses/en-ro.txt.zip", "SETIMES.en-ro", "ro"),
    ]
    dev = [
        [
            "http://data.statmt.org/wmt16/translation-task/dev-romanian-updated.tgz",
            ("dev/newsdev2016-roen-ref.en.sgm", "dev/newsdev2016-roen-src.ro.sgm"),
        ]
    ]


TranslateEnroWmt8k = small(TranslateEnroWmt32k)
TranslateEnroWmtCharacters = characters(TranslateEnroWmt32k)

# English to Chinese

_CWMT = [
    ["cwmt.tgz", (f"cwmt/{stem}_en.txt", f"cwmt/{stem}_{chinese}.txt")]
    for stem, chinese in (
        ("casia2015/casia2015", "ch"),
        ("casict2015/casict2015", "ch"),
        ("neu2017/NEU", "cn"),
        ("datum2015/datum", "ch"),
        *((f"datum2017/Book{number}", "cn") for number in range(1, 21)),
    )
]
_UN = ["UNv1.0.en-zh.tar.gz", ("en-zh/UNv1.0.en-zh.en", "en-zh/UNv1.0.en-zh.zh")]
_ENZH_DEV = [
    f"{_WMT18}/dev.tgz",
    ("dev/newsdev2017-enzh-src.en.sgm", "dev/newsdev2017-enzh-ref.zh.sgm"),
]


@register_problem
class TranslateEnzhWmt8k(TwoVocabularyProblem):
    """News Commentary: 252,000 pairs, with a small vocabulary for each language."""

    approx_vocab_size = 2**13
    vocab_file_budget = 1e8
    dataset_splits = with_shards((DatasetSplit.TRAIN, DatasetSplit.EVAL), train=10)

    @property
    def vocab_filenames(self) -> tuple[str, str]:
        return f"{self.vocab_filename}.en", f"{self.vocab_filename}.zh"

    def source_data_files(self, split: str) -> list:
        return [news_commentary_v13("zh")] if split == DatasetSplit.TRAIN else [_ENZH_DEV]


@register_problem
class TranslateEnzhWmt32k(TranslateEnzhWmt8k):
    """WMT 2018, 24 million pairs, with a vocabulary for each language.

    The archives of CWMT (http://nlp.nju.edu.cn/cwmt-wmt/) and of the UN Parallel Corpus
    (https://conferences.unite.un.org/UNCorpus) come on request, into `tmp_dir`; absent ones are skipped.
    """

    approx_vocab_size = 2**15
    dataset_splits = with_shards((DatasetSplit.TRAIN, DatasetSplit.EVAL))

    def source_data_files(self, split: str) -> list:
        more = [*_CWMT, _UN] if split == DatasetSplit.TRAIN else []
        return [*super().source_data_files(split), *more]

    def available(self, tmp_dir: PathLike, sources: Sequence) -> list:
        """Returns the sources whose archives are in `tmp_dir` or can be fetched."""
        placed = {source[0] for source in sources if "://" not in source[0]}
        absent = {archive for archive in placed if not (Path(tmp_dir) / archive).exists()}
        for archive in sorted(absent):
            warn_once(f"{self.name}: without {archive}, which is not in {tmp_dir}")
        return [source for source in sources if source[0] not in absent]
