"""T2T's translation problems: names, sources and sizes, as its files of 2020 to 2023 state them."""

from typing import NamedTuple

import pytest

from t2t_keras import registry
from t2t_keras.data import SpaceID, VocabType
from t2t_keras.data.sources.download import KNOWN_FILES
from t2t_keras.errors import UserError
from t2t_keras.text import ByteTextEncoder

NC_V13 = "http://data.statmt.org/wmt18/translation-task/training-parallel-nc-v13.tgz"
DEV = "http://data.statmt.org/wmt17/translation-task/dev.tgz"
DEV_2018 = "http://data.statmt.org/wmt18/translation-task/dev.tgz"
WMT18 = "http://data.statmt.org/wmt18/translation-task/"
PARACRAWL = "https://s3.amazonaws.com/web-language-models/paracrawl/"
MILLION = "https://s3.amazonaws.com/opennmt-trainingdata/baseline-1M-enfr.tgz"
CZENG = (
    "https://lindat.mff.cuni.cz/repository/xmlui/bitstream/handle/11234/1-1458/"
    "data-plaintext-format.tar"
)
STEFAN_IT = "https://github.com/stefan-it/nmt-en-"
ENID = "https://github.com/prasastoadi/parallel-corpora-en-id/raw/master/"
ENTN = "https://github.com/LauraMartinus/ukuxhumana/blob/master/data/en_tn/eng_tswane"
CORPORA = {
    "nc13": (NC_V13, "training-parallel-nc-v13/news-commentary-v13.{}-en"),
    "nc9": ("http://www.statmt.org/wmt14/training-parallel-nc-v9.tgz", "training/news-commentary-v9.{}-en"),
    "crawl": ("http://www.statmt.org/wmt13/training-parallel-commoncrawl.tgz", "commoncrawl.{}-en"),
    "europarl": ("http://www.statmt.org/wmt13/training-parallel-europarl-v7.tgz", "training/europarl-v7.{}-en"),
    "un": ("http://www.statmt.org/wmt13/training-parallel-un.tgz", "un/undoc.2000.{}-en"),
    "newstest2013": (DEV, "dev/newstest2013"),
    "zipporah": (
        PARACRAWL + "release1/paracrawl-release1.en-{}.zipporah0-dedup-clean.tgz",
        "paracrawl-release1.en-{}.zipporah0-dedup-clean",
    ),
}  # fmt: skip
"""Corpora of several languages: URL and the two files without their last part."""


def both(url, stem, language):
    return (url.format(language), *(f"{stem.format(language)}.{side}" for side in ("en", language)))


def corpora(language, *names):
    return [both(*CORPORA[name], language) for name in names]


def panl(part, thousands):
    """The source of an Indonesian corpus: two files of so many thousand words."""
    files = (f"PANL-BPPT-{part}-{side}-{thousands}Kw.txt" for side in ("EN", "ID"))
    return (f"{ENID}PANL-BPPT-{part}-EN-ID-{thousands}Kw.tgz", *files)


ENDE, ENDE_DEV = corpora("de", "nc13", "crawl", "europarl"), corpora("de", "newstest2013")
ENDE_PC = [(PARACRAWL + "release4/en-de.bicleaner07.tmx.gz", "tmx", "en-de.bicleaner07.tmx.gz")]
GIGA = "giga-fren.release2.fixed."
ENFR = [
    *corpora("fr", "crawl", "europarl", "nc9"),
    ("http://www.statmt.org/wmt10/training-giga-fren.tar", f"{GIGA}en.gz", f"{GIGA}fr.gz"),
    *corpora("fr", "un"),
]
ENFR_DEV = corpora("fr", "newstest2013")
ENFR_SMALL = [both(MILLION, "baseline-1M-enfr/baseline-1M_train", "fr")]
ENFR_SMALL_DEV = [both(MILLION, "baseline-1M-enfr/baseline-1M_valid", "fr")]
ENCS = [(CZENG, "tsv", 3, 2, "data.plaintext-format/*train.gz")]
ENCS += corpora("cs", "nc13", "crawl", "europarl")
ENCS_DEV = corpora("cs", "newstest2013")
ENES = corpora("es", "crawl", "europarl", "un", "zipporah")
ENES_DEV = corpora("es", "newstest2013")
ENET = [
    both(WMT18 + "training-parallel-ep-v8.tgz", "training/europarl-v8.et-en", "et"),
    *corpora("et", "zipporah"),
    both(WMT18 + "rapid2016.tgz", "rapid2016.en-et", "et"),
]
NEWSDEV = STEFAN_IT + "et/raw/master/data/newsdev2018-enet.tar.gz"
ENET_DEV = [(NEWSDEV, "newsdev2018-enet-src.en", "newsdev2018-enet-ref.et")]
ENRO = [
    both("http://www.statmt.org/europarl/v7/ro-en.tgz", "europarl-v7.ro-en", "ro"),
    both(
        "http://opus.nlpl.eu/download.php?f=SETIMES/v2/moses/en-ro.txt.zip", "SETIMES.en-ro", "ro"
    ),
]
ROMANIAN_DEV = "http://data.statmt.org/wmt16/translation-task/dev-romanian-updated.tgz"
ENRO_DEV = [(ROMANIAN_DEV, "dev/newsdev2016-roen-ref.en.sgm", "dev/newsdev2016-roen-src.ro.sgm")]
ENVI = [both(STEFAN_IT + "vi/raw/master/data/train-en-vi.tgz", "train", "vi")]
ENVI_DEV = [both(STEFAN_IT + "vi/raw/master/data/dev-2012-en-vi.tgz", "tst2012", "vi")]
ENID_TRAIN = [both(ENID + "IWSLT17.train.en-id.tgz", "IWSLT17.train.en-id", "id")]
ENID_TRAIN += [panl("ECO", 150), panl("INT", 150), panl("SCI", 100), panl("SPO", 100)]
ENID_DEV = [both(ENID + "IWSLT17.TED.tst2017plus.en-id.tgz", "IWSLT17.TED.tst2017plus.en-id", "id")]
SETIMES = "http://nlp.ffzg.hr/data/corpora/setimes/setimes.en-mk.txt.tgz"
ENMK = [(SETIMES, "setimes.en-mk.en.txt", "setimes.en-mk.mk.txt")]
ENMK_DEV = [both(STEFAN_IT + "mk/raw/master/data/MTE-1984-dev.enmk.tgz", "MTE1984-dev", "mk")]
ENTN_TRAIN = [both(ENTN + ".train.tar.gz?raw=true", "entn_parallel.train", "tn")]
ENTN_DEV = [both(ENTN + ".dev.tar.gz?raw=true", "entn_parallel.dev", "tn")]
ENZH = corpora("zh", "nc13")
CWMT = [
    ("cwmt.tgz", f"cwmt/{stem}_en.txt", f"cwmt/{stem}_{chinese}.txt")
    for stem, chinese in (
        *(("casia2015/casia2015", "ch"), ("casict2015/casict2015", "ch")),
        *(("neu2017/NEU", "cn"), ("datum2015/datum", "ch")),
        *((f"datum2017/Book{n}", "cn") for n in range(1, 21)),
    )
]
UN_ZH = [both("UNv1.0.en-zh.tar.gz", "en-zh/UNv1.0.en-zh", "zh")]
ENZH_DEV = [(DEV_2018, "dev/newsdev2017-enzh-src.en.sgm", "dev/newsdev2017-enzh-ref.zh.sgm")]


class Facts(NamedTuple):
    train: list
    dev: list
    vocabulary: str | None
    """Its file; None: bytes."""
    packed_length: int | None = None
    train_shards: int = 100


def subwords(name, size=32768):
    return f"vocab.translate_{name}.{size}.subwords"


FACTS = {
    "ende_wmt32k": Facts(ENDE, ENDE_DEV, subwords("ende_wmt32k")),
    "ende_wmt32k_packed": Facts(ENDE, ENDE_DEV, subwords("ende_wmt32k"), 256),
    "ende_wmt8k": Facts(ENDE, ENDE_DEV, subwords("ende_wmt8k", 8192)),
    "ende_wmt8k_packed": Facts(ENDE, ENDE_DEV, subwords("ende_wmt8k", 8192), 256),
    "ende_wmt_characters": Facts(ENDE, ENDE_DEV, None),
    "ende_pc32k": Facts(ENDE_PC, ENDE_DEV, subwords("ende_wmt32k")),
    "ende_wmt_pc32k": Facts(ENDE + ENDE_PC, ENDE_DEV, subwords("ende_wmt32k")),
    "enfr_wmt32k": Facts(ENFR, ENFR_DEV, subwords("enfr_wmt32k")),
    "enfr_wmt32k_packed": Facts(ENFR, ENFR_DEV, subwords("enfr_wmt32k"), 256),
    "enfr_wmt8k": Facts(ENFR, ENFR_DEV, subwords("enfr_wmt8k", 8192)),
    "enfr_wmt_characters": Facts(ENFR, ENFR_DEV, None),
    "enfr_wmt_small32k": Facts(ENFR_SMALL, ENFR_SMALL_DEV, subwords("enfr_wmt_small32k")),
    "enfr_wmt_small8k": Facts(ENFR_SMALL, ENFR_SMALL_DEV, subwords("enfr_wmt_small8k", 8192)),
    "enfr_wmt_small_characters": Facts(ENFR_SMALL, ENFR_SMALL_DEV, None),
    "encs_wmt32k": Facts(ENCS, ENCS_DEV, subwords("encs_wmt32k")),
    "encs_wmt_characters": Facts(ENCS, ENCS_DEV, None),
    "enes_wmt32k": Facts(ENES, ENES_DEV, subwords("enes_wmt32k")),
    "enes_wmt32k_packed": Facts(ENES, ENES_DEV, subwords("enes_wmt32k"), 256),
    "enes_wmt8k": Facts(ENES, ENES_DEV, subwords("enes_wmt8k", 8192)),
    "enes_wmt8k_packed": Facts(ENES, ENES_DEV, subwords("enes_wmt8k", 8192), 256),
    "enes_wmt_characters": Facts(ENES, ENES_DEV, None),
    "enet_wmt32k": Facts(ENET, ENET_DEV, subwords("enet_wmt32k")),
    "enet_wmt_characters": Facts(ENET, ENET_DEV, None),
    "enro_wmt32k": Facts(ENRO, ENRO_DEV, subwords("enro_wmt32k")),
    "enro_wmt8k": Facts(ENRO, ENRO_DEV, subwords("enro_wmt8k", 8192)),
    "enro_wmt_characters": Facts(ENRO, ENRO_DEV, None),
    "envi_iwslt32k": Facts(ENVI, ENVI_DEV, subwords("envi_iwslt32k")),
    "enid_iwslt32k": Facts(ENID_TRAIN, ENID_DEV, subwords("enid_iwslt32k")),
    "enmk_setimes32k": Facts(ENMK, ENMK_DEV, subwords("enmk_setimes32k")),
    "enmk_setimes_characters": Facts(ENMK, ENMK_DEV, None),
    "entn_rma": Facts(ENTN_TRAIN, ENTN_DEV, "vocab.entn.32768"),
    "enzh_wmt32k": Facts(ENZH + CWMT + UN_ZH, ENZH_DEV, subwords("enzh_wmt32k")),
    "enzh_wmt8k": Facts(ENZH, ENZH_DEV, subwords("enzh_wmt8k", 8192), train_shards=10),
}

UNSUPPORTED = {
    "cleans text by rules for English": """ende_pc_clean32k ende_wmt_clean32k ende_wmt_clean_pc32k
        ende_wmt_clean_pc_clean32k ende_wmt_pc_clean32k enes_wmt_clean32k""",
    "language model of Wikipedia": """ende_wmt_multi64k ende_wmt_multi64k_packed1k enfr_wmt_multi64k
        enfr_wmt_multi64k_packed1k enro_wmt_multi64k enro_wmt_multi_small64k
        enro_wmt_multi_tiny64k enro_wmt_multi_tiny64k_packed1k""",
    "back-translated": """encs_cubbitt enfr_wmt32k_with_backtranslate_en
        enfr_wmt32k_with_backtranslate_fr""",
    "names no files": "ende2018_wmt32k",
}


def test_every_problem_of_t2t_is_known():
    """Its documentation counts 51 that translate text."""
    assert len(FACTS) + sum(len(names.split()) for names in UNSUPPORTED.values()) == 51
    assert {f"translate_{name}" for name in FACTS} <= {*registry.list_problems()}


@pytest.mark.parametrize("name", FACTS)
def test_a_problem_is_that_of_t2t(name):
    facts, problem = FACTS[name], registry.problem(f"translate_{name}")
    for split in ("train", "dev"):
        found = [(url, *files) for url, files in problem.source_data_files(split)]
        assert found == getattr(facts, split)
    assert problem.vocab_filename == facts.vocabulary
    if facts.vocabulary is None:
        assert problem.vocab_type == VocabType.CHARACTER
        assert isinstance(problem.feature_encoders("")["inputs"], ByteTextEncoder)
    else:
        assert str(problem.approx_vocab_size) in facts.vocabulary
    assert problem.packed_length == facts.packed_length
    shards = {item["split"]: item["shards"] for item in problem.dataset_splits}
    assert shards == {"train": facts.train_shards, "dev": 1}
    assert (problem.input_space_id, problem.target_space_id) == (SpaceID.GENERIC, SpaceID.GENERIC)
    assert problem.is_generate_per_split
    turned = registry.problem(f"translate_{name}_rev")
    assert turned.name == f"translate_{name}_rev"
    assert turned.dataset_filename() == f"translate_{name}"
    assert turned.vocab_filename == facts.vocabulary


def test_chinese_has_its_own_vocabulary():
    problem = registry.problem("translate_enzh_wmt8k")
    name = "vocab.translate_enzh_wmt8k.8192.subwords"
    assert problem.vocab_filenames == (f"{name}.en", f"{name}.zh")
    assert problem.vocab_file_budget == 1e8


@pytest.mark.parametrize("reason", UNSUPPORTED)
def test_a_problem_that_is_not_here_says_why(reason):
    for name in UNSUPPORTED[reason].split():
        for suffix in ("", "_rev"):
            with pytest.raises(UserError, match=f"'translate_{name}' of tensor2tensor.*{reason}"):
                registry.problem(f"translate_{name}{suffix}")
        assert f"translate_{name}" not in registry.list_problems()


def test_an_unsupported_name_is_suggested_too():
    with pytest.raises(UserError, match="Did you mean 'translate_encs_cubbitt'"):
        registry.problem("translate_encs_cubbit")


def test_checksums_are_of_files_that_problems_fetch():
    urls = {source[0] for facts in FACTS.values() for source in facts.train + facts.dev}
    assert {*KNOWN_FILES} <= urls
    for size, sha256 in KNOWN_FILES.values():
        assert size > 10_000_000
        assert len(bytes.fromhex(sha256)) == 32
