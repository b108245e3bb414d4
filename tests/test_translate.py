"""T2T's translation problems: as its files of 2020 to 2023 state them, and from archives to shards."""

import gzip
import json
from pathlib import Path
from unittest import mock

import pytest
from corpus_files import as_text, stored_texts as stored, write_archive, write_content, write_lines

from t2t_keras import registry
from t2t_keras.cli.datagen import describe
from t2t_keras.data import SpaceID, TranslateProblem, VocabType, sources
from t2t_keras.data.sources import KNOWN_FILES
from t2t_keras.errors import UserError
from t2t_keras.text import ByteTextEncoder

# Of each problem: the sources of train and dev (URL and files), the vocabulary's file (null:
# bytes), the length of packed rows, and the number of shards.
FACTS = json.loads(Path(__file__).with_name("data").joinpath("translate_families.json").read_text())

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
        assert [[url, *files] for url, files in problem.source_data_files(split)] == facts[split]
    assert problem.vocab_filename == facts["vocabulary"]
    if facts["vocabulary"] is None:
        assert problem.vocab_type == VocabType.CHARACTER
        assert isinstance(problem.feature_encoders("")["inputs"], ByteTextEncoder)
    else:
        assert str(problem.approx_vocab_size) in facts["vocabulary"]
    assert problem.packed_length == facts["packed_length"]
    shards = {item["split"]: item["shards"] for item in problem.dataset_splits}
    assert shards == {"train": facts["train_shards"], "dev": 1}
    assert problem.space_ids == (SpaceID.GENERIC, SpaceID.GENERIC)
    assert problem.is_generate_per_split
    assert registry.problem(f"translate_{name}_rev").vocab_filename == facts["vocabulary"]


@pytest.mark.parametrize("reason", UNSUPPORTED)
def test_a_problem_that_is_not_here_says_why(reason):
    for name in UNSUPPORTED[reason].split():
        for suffix in ("", "_rev"):
            with pytest.raises(UserError, match=f"'translate_{name}' of tensor2tensor.*{reason}"):
                registry.problem(f"translate_{name}{suffix}")
        assert f"translate_{name}" not in registry.list_problems()
    with pytest.raises(UserError, match="Did you mean 'translate_encs_cubbitt'"):
        registry.problem("translate_encs_cubbit")


def test_checksums_are_of_files_that_problems_fetch():
    urls = {source[0] for facts in FACTS.values() for source in facts["train"] + facts["dev"]}
    assert {*KNOWN_FILES} <= urls
    for size, sha256 in KNOWN_FILES.values():
        assert size > 10_000_000
        assert len(bytes.fromhex(sha256)) == 32


# From archives laid out as they are shipped

CODES = {"de": "Zeile", "fr": "ligne", "cs": "řádek", "zh": "行", "ru": "строка"}


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Files in tmp_dir are used: any request is an error."""

    def refuse(request, **kwargs):
        url = request if isinstance(request, str) else request.full_url
        assert url.startswith("file:"), f"{url} was asked for"
        return urlopen(request, **kwargs)

    urlopen = sources.urllib.request.urlopen
    monkeypatch.setattr(sources.urllib.request, "urlopen", refuse)


def lines(name, language, count=8):
    """Text that tells where it comes from: line N of each language translates line N."""
    return [f"{CODES.get(language, 'line')} {number} {name}." for number in range(count)]


def both(stem, language, name, count=8):
    """The members `stem.en` and `stem.language` of an archive."""
    return {f"{stem}.{code}": as_text(lines(name, code, count)) for code in ("en", language)}


def wmt_archives(tmp_dir, language):
    """A small version of WMT's archives for a language pair, with another pair beside it."""
    tmp_dir.mkdir(exist_ok=True)
    stems = {
        "training-parallel-nc-v13": ("training-parallel-nc-v13/news-commentary-v13.", "nc13"),
        "training-parallel-nc-v9": ("training/news-commentary-v9.", "nc9"),
        "training-parallel-commoncrawl": ("commoncrawl.", "crawl"),
        "training-parallel-europarl-v7": ("training/europarl-v7.", "europarl"),
        "training-parallel-un": ("un/undoc.2000.", "un"),
    }
    for archive, (stem, name) in stems.items():
        members = both(f"{stem}{language}-en", language, name) | both(f"{stem}it-en", "it", "other")
        members[f"{stem}{language}-en.annotation"] = b"line 0 http://example.com\n"
        write_archive(tmp_dir / f"{archive}.tgz", members)
    giga = {code: gzip.compress(as_text(lines("giga", code))) for code in ("en", language)}
    members = {f"giga-fren.release2.fixed.{code}.gz": content for code, content in giga.items()}
    write_archive(tmp_dir / "training-giga-fren.tar", members)
    other = {"dev/newstest2012.en": as_text(lines("other", "en"))}
    write_archive(tmp_dir / "dev.tgz", both("dev/newstest2013", language, "dev", 3) | other)


def samples(problem, tmp_dir, split):
    return [tuple(sample.values()) for sample in problem.generate_samples("", tmp_dir, split)]


def expected(language, *names, count=8):
    codes = ("en", language)
    sides = ([line for name in names for line in lines(name, code, count)] for code in codes)
    return [*zip(*sides, strict=True)]


@pytest.mark.parametrize(
    ("language", "name", "corpora"),
    [
        ("de", "translate_ende_wmt32k", ["nc13", "crawl", "europarl"]),
        ("fr", "translate_enfr_wmt32k", ["crawl", "europarl", "nc9", "giga", "un"]),
    ],
)
def test_german_and_french(tmp_path, language, name, corpora):
    wmt_archives(tmp_path, language)
    problem = registry.problem(name)
    assert samples(problem, tmp_path, "train") == expected(language, *corpora)
    assert samples(problem, tmp_path, "dev") == expected(language, "dev", count=3)
    unpacked = [path for path in tmp_path.rglob("*.*") if path.suffix not in (".tgz", ".tar")]
    assert len(unpacked) == 2 * len([*corpora, "dev"])
    assert not any("it-en" in path.name for path in unpacked)
    if "giga" in corpora:  # what gunzip left is used
        for code in ("en", "fr"):
            (tmp_path / f"giga-fren.release2.fixed.{code}.gz").unlink()
            write_lines(tmp_path / f"giga-fren.release2.fixed.{code}", lines("mine", code))
        (tmp_path / "training-giga-fren.tar").unlink()
        assert set(expected("fr", "mine")) < set(samples(problem, tmp_path, "train"))


def czeng(tmp_dir):
    """CzEng's columns: name, score, Czech, English."""
    members = {"data.plaintext-format/99etest.gz": gzip.compress(b"a\tb\tc\td\n")}
    for part in (1, 0):
        pairs = enumerate(expected("cs", f"czeng{part}"))
        rows = [f"czeng-{part}-{row}\t0.9\t{czech}\t{english}" for row, (english, czech) in pairs]
        members[f"data.plaintext-format/{part:02d}train.gz"] = gzip.compress(as_text(rows))
    write_archive(tmp_dir / "data-plaintext-format.tar", members)


def test_czech_has_tables(tmp_path, monkeypatch):
    wmt_archives(tmp_path, "cs")
    czeng(tmp_path)
    problem = registry.problem("translate_encs_wmt_characters")
    names = ("czeng0", "czeng1", "nc13", "crawl", "europarl")
    assert samples(problem, tmp_path, "train") == expected("cs", *names)
    assert not (tmp_path / "data.plaintext-format" / "99etest.gz").exists()
    # A table that is absent is taken from the archive again.
    (tmp_path / "data.plaintext-format" / "00train.gz").unlink()  # as if stopped between the two
    monkeypatch.setattr(sources, "_read_through", set())  # a new process
    assert samples(problem, tmp_path, "train") == expected("cs", *names)


def by_the_rule_of_t2t(rows, budget):
    """Lines of a file for the vocabulary (T2T's `generate_lines_for_vocab`)."""
    skip, skipped, taken = int(len(as_text(rows)) / budget / 2), 0, []
    for row in rows:
        if skipped < skip:
            skipped += 1
        elif budget > 0:
            budget -= len(row)
            skipped = 0
            taken.append(row)
    return taken


def test_czech_vocabulary_reads_all_text_and_each_file(tmp_path, monkeypatch):
    """T2T samples the concatenation of all pairs, and then each file that is not a table."""
    wmt_archives(tmp_path, "cs")
    czeng(tmp_path)
    problem = registry.problem("translate_encs_wmt32k")
    monkeypatch.setattr(type(problem), "vocab_file_budget", 60)
    wanted = []
    everything = expected("cs", "czeng0", "czeng1", "nc13", "crawl", "europarl")
    for pairs in (everything, *(expected("cs", name) for name in ("nc13", "crawl", "europarl"))):
        for side in (0, 1):
            wanted += by_the_rule_of_t2t([pair[side] for pair in pairs], 60)
    assert list(problem.generate_text_for_vocab("", tmp_path)) == wanted
    assert len(wanted) < 60
    assert not problem.dropped
    (tmp_path / "one").write_text("tea")  # a user's files need not be parallel, nor two
    own = type("Own", (TranslateProblem,), {"vocab_data_files": lambda _: [["", ["one"]]]})
    assert list(own().generate_text_for_vocab("", tmp_path)) == ["tea"]


def sgm(rows):
    return as_text(["<refset>", *(f'<seg id="{n}">{row}</seg>' for n, row in enumerate(rows, 1))])


@pytest.mark.parametrize("query", ["", "?raw=true"])
def test_an_archive_may_have_the_query_in_its_name_as_in_t2t(tmp_path, query):
    write_archive(tmp_path / "eng_tswane.dev.tar.gz", both("entn_parallel.dev", "tn", "dev"))
    (tmp_path / "eng_tswane.dev.tar.gz").rename(tmp_path / f"eng_tswane.dev.tar.gz{query}")
    assert len(samples(registry.problem("translate_entn_rma"), tmp_path, "dev")) == 8


@pytest.fixture
def chinese(tmp_path):
    stem = "training-parallel-nc-v13/news-commentary-v13.zh-en"
    write_archive(tmp_path / "training-parallel-nc-v13.tgz", both(stem, "zh", "nc13"))
    dev = {
        "dev/newsdev2017-enzh-src.en.sgm": sgm(lines("dev", "en", 3)),
        "dev/newsdev2017-enzh-ref.zh.sgm": sgm(lines("dev", "zh", 3)),
    }
    write_archive(tmp_path / "dev.tgz", dev)
    return tmp_path


def test_chinese_has_two_vocabularies(chinese):
    data_dir = chinese / "data"
    problem = registry.problem("translate_enzh_wmt8k")
    assert problem.vocab_file_budget == 1e8
    with pytest.raises(UserError, match=r"8192\.subwords\.en is absent: run t2t-keras-datagen"):
        problem.feature_encoders(data_dir)
    problem.generate_data(data_dir, chinese)
    name = "vocab.translate_enzh_wmt8k.8192.subwords"
    assert sorted(path.name for path in data_dir.glob("vocab*")) == [f"{name}.en", f"{name}.zh"]
    described = [line.split()[-1] for line in describe(problem, data_dir)[:2]]
    assert described == [f"{name}.en", f"{name}.zh"]
    encoders = problem.get_feature_encoders(data_dir)
    assert "行" in "".join(encoders["targets"].all_subtoken_strings)
    assert "行" not in "".join(encoders["inputs"].all_subtoken_strings)
    pairs = expected("zh", "dev", count=3)
    assert stored(problem, "dev", data_dir) == sorted(pairs)
    turned = registry.problem("translate_enzh_wmt8k_rev")
    assert stored(turned, "dev", data_dir) == sorted(pair[::-1] for pair in pairs)


def test_chinese_corpora_that_are_asked_for_are_used_when_they_are_there(chinese, capsys):
    problem, members = registry.problem("translate_enzh_wmt32k"), {}
    cwmt = [names for url, names in problem.source_data_files("train") if url == "cwmt.tgz"]
    for number, (english, chinese_name) in enumerate(cwmt):
        members[english] = as_text(lines(f"cwmt{number}", "en", 1))
        members[chinese_name] = as_text(lines(f"cwmt{number}", "zh", 1))
    write_archive(chinese / "cwmt.tgz", members)
    names = [f"cwmt{number}" for number in range(24)]
    for _ in range(2):
        pairs = expected("zh", "nc13") + expected("zh", *names, count=1)
        assert samples(problem, chinese, "train") == pairs
    assert capsys.readouterr().err == (
        f"warning: translate_enzh_wmt32k: without UNv1.0.en-zh.tar.gz, which is not in {chinese}\n"
    )


# Fetching

ABSENT = (
    "The source file {0}/in/a.en is absent, and so is {0}/toy.tgz, which would hold it: place one "
    "of them there, or see --tmp_dir."
)
NOT_HELD = (
    "{0}/toy.tgz does not hold in/a.de: place the right archive there (it comes from toy.tgz), or "
    "the file itself as {0}/in/a.de."
)


class Toy(TranslateProblem):
    url = ""
    names = ("in/a.en", "in/a.de")

    def source_data_files(self, split):
        return [[self.url, self.names]]


def test_an_archive_is_fetched_once_and_only_if_its_files_are_absent(tmp_path, monkeypatch):
    tmp_dir, toy = tmp_path / "tmp", write_archive(tmp_path / "toy.tgz", both("in/a", "de", "toy"))
    monkeypatch.setattr(Toy, "url", str(toy))
    fetch = mock.Mock(wraps=sources.fetch)
    monkeypatch.setattr(sources, "fetch", fetch)
    assert samples(Toy(), tmp_dir, "train") == expected("de", "toy")
    (tmp_dir / "toy.tgz").unlink()
    assert samples(Toy(), tmp_dir, "train") == expected("de", "toy")
    fetch.assert_called_once_with(str(toy), tmp_dir / "toy.tgz")


@pytest.mark.parametrize(
    ("url", "content", "message"),
    [
        ("", None, "The source file {}/in/a.en is absent: place it there, or see --tmp_dir."),
        ("toy.tgz", None, ABSENT),
        ("toy.tgz", {"in/a.en": b"one\n"}, NOT_HELD),
    ],
)
def test_files_that_cannot_be_had(tmp_path, monkeypatch, url, content, message):
    if content:
        write_archive(tmp_path / "toy.tgz", content)
    monkeypatch.setattr(Toy, "url", url)
    with pytest.raises(UserError) as raised:
        samples(Toy(), tmp_path, "train")
    assert str(raised.value).startswith(message.format(tmp_path))
    assert (tmp_path / "in" / "a.en").exists() == bool(content)


def test_cleaning_as_in_t2t_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(Toy, "datatypes_to_clean", ["txt"])
    with pytest.raises(UserError, match=r"asks for T2T's cleaning of \['txt'\], which is not"):
        samples(Toy(), tmp_path, "train")


@pytest.mark.parametrize(
    ("form", "content"),
    [
        (("tsv", 0, 1), b"cat\tKatze\ndog\tHund\n"),
        (("tmx",), b"<tu><seg>cat</seg><seg>Katze</seg></tu>\n<seg>dog</seg><seg>Hund</seg></tu>"),
    ],
)
def test_a_single_file_can_be_what_is_fetched(tmp_path, form, content):
    (tmp_path / "remote").mkdir()
    file = write_content(tmp_path / "remote" / "titles.gz", content)
    source = [file.as_uri(), (*form, "titles.gz")]
    found = list(sources.read_sources(tmp_path / "tmp", [source], {}))
    assert found == [("cat", "Katze"), ("dog", "Hund")]


def test_the_new_language_pair_of_the_page_works(tmp_path):
    page = Path(__file__).parents[1].joinpath("docs/data.md").read_text("utf-8")
    code = page.split("## A new language pair\n")[1].split("```python\n")[1].split("```")[0]
    exec(code, {"__name__": "page"})
    wmt_archives(tmp_path, "ru")
    problem = registry.problem("translate_enru_wmt32k")
    assert samples(problem, tmp_path, "train") == expected("ru", "nc9", "crawl")
    assert samples(problem, tmp_path, "dev") == expected("ru", "dev", count=3)
