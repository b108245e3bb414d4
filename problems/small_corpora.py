"""Pairs of texts: translation on small corpora (Multi30k, IWSLT, PANL-BPPT, SETimes, RMA), summaries."""

from collections.abc import Iterator

from t2t_keras.data import TfdsTranslateProblem, TranslateProblem
from t2t_keras.data.problem import SPLITS, with_shards
from t2t_keras.problems.wmt import CorpusProblem, characters
from t2t_keras.registry import register_problem

_GITHUB = "https://github.com"
_MULTI30K = (
    "https://raw.githubusercontent.com/multi30k/dataset/"
    "a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1/raw/"
)
_MULTI30K_PARTS = dict(zip(SPLITS, ("train", "val", "test_2016_flickr"), strict=True))


class Multi30kProblem(TranslateProblem):
    """Multi30k, task 1: 29,000 image descriptions, from its `.gz` files in `--tmp_dir`, fetched if absent."""

    languages: tuple[str, str]  # source and target, as in the file names
    approx_vocab_size = 2**12
    dataset_splits = with_shards(SPLITS, train=10)

    def source_data_files(self, split: str) -> list:
        source, target = (f"{_MULTI30K_PARTS[split]}.{language}.gz" for language in self.languages)
        return [[(_MULTI30K + source, _MULTI30K + target), (source, target)]]


@register_problem
class TranslateEndeMulti30k(Multi30kProblem):
    """English to German."""

    languages = ("en", "de")


@register_problem
class TranslateEnfrMulti30k(Multi30kProblem):
    """English to French."""

    languages = ("en", "fr")


def _enid(name: str, english: str = "", indonesian: str = "") -> list:
    """Returns a source from the repository of English-Indonesian corpora."""
    url = f"{_GITHUB}/prasastoadi/parallel-corpora-en-id/raw/master/{name}.tgz"
    return [url, (english or f"{name}.en", indonesian or f"{name}.id")]


def _panl(topic: str, words: str) -> list:
    both, *sides = (f"PANL-BPPT-{topic}-{side}-{words}" for side in ("EN-ID", "EN", "ID"))
    return _enid(both, *(f"{side}.txt" for side in sides))


@register_problem
class TranslateEnidIwslt32k(CorpusProblem):
    """English to Indonesian, IWSLT 2017 and PANL-BPPT: 133,000 pairs."""

    train = [
        _enid("IWSLT17.train.en-id"),
        *(_panl(topic, "150Kw") for topic in ("ECO", "INT")),
        *(_panl(topic, "100Kw") for topic in ("SCI", "SPO")),
    ]
    dev = [_enid("IWSLT17.TED.tst2017plus.en-id")]


_ENVI = f"{_GITHUB}/stefan-it/nmt-en-vi/raw/master/data"


@register_problem
class TranslateEnviIwslt32k(CorpusProblem):
    """English to Vietnamese, IWSLT 2015: 133,000 pairs."""

    train = [[f"{_ENVI}/train-en-vi.tgz", ("train.en", "train.vi")]]
    dev = [[f"{_ENVI}/dev-2012-en-vi.tgz", ("tst2012.en", "tst2012.vi")]]


_SETIMES = "http://nlp.ffzg.hr/data/corpora/setimes/setimes.en-mk.txt.tgz"
_ORWELL = f"{_GITHUB}/stefan-it/nmt-en-mk/raw/master/data/MTE-1984-dev.enmk.tgz"


@register_problem
class TranslateEnmkSetimes32k(CorpusProblem):
    """English to Macedonian, SETimes: 208,000 pairs; dev is Orwell's "1984"."""

    train = [[_SETIMES, ("setimes.en-mk.en.txt", "setimes.en-mk.mk.txt")]]
    dev = [[_ORWELL, ("MTE1984-dev.en", "MTE1984-dev.mk")]]


TranslateEnmkSetimesCharacters = characters(TranslateEnmkSetimes32k)


def _entn(part: str) -> list:
    url = f"{_GITHUB}/LauraMartinus/ukuxhumana/blob/master/data/en_tn/eng_tswane.{part}.tar.gz"
    return [f"{url}?raw=true", (f"entn_parallel.{part}.en", f"entn_parallel.{part}.tn")]


@register_problem
class TranslateEntnRma(CorpusProblem):
    """English to Setswana, the Autshumato corpus of the RMA; its vocabulary file has T2T's name."""

    train, dev = [_entn("train")], [_entn("dev")]
    vocab_filename = f"vocab.entn.{2**15}"


# Summaries of news


@register_problem
class SummarizeCnnDailymail32k(TfdsTranslateProblem):
    """News stories of CNN and the Daily Mail and their highlights, 287,000 pairs (T2T's name)."""

    tfds_name = "cnn_dailymail"
    languages = ("article", "highlights")

    dataset_splits = with_shards(SPLITS, train=100, other=10)  # as in T2T

    def generate_samples(self, data_dir, tmp_dir, split: str) -> Iterator[dict[str, str]]:
        """Yields stories and highlights, each on one line; in the dataset they have several lines."""
        for sample in super().generate_samples(data_dir, tmp_dir, split):
            yield {side: " ".join(text.split()) for side, text in sample.items()}
