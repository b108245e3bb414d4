"""Problem translate_files: one's own text by flags, and what it was made from."""

import json
import os
import re
from collections import Counter
from itertools import islice

import pytest
import tfds_datasets
import toy
from corpus_files import stored_texts, write_content, write_lines as write
from tfds_datasets import pair, prepare

from t2t_keras import registry
from t2t_keras.data.on_the_fly import TextBatches
from t2t_keras.data.shards import find_shards
from t2t_keras.data.translate import Corpus, MixedCorpora, ParallelFiles, evenly_spaced
from t2t_keras.errors import UserError
from t2t_keras.problems.numbers import pairs

VOCABULARY, NOTE = "vocab.translate_files.subwords", "source.translate_files.json"

GENERATING = ("--problem=translate_files", "--num_concurrent_processes=1")


@pytest.fixture
def files(tmp_path):
    """Rows of letters and the same backwards: pairs of files by split."""
    folder, by_split = tmp_path / "text", {}
    for seed, (split, count) in enumerate((("train", 400), ("dev", 30), ("test", 20))):
        rows = toy.rows(count, seed)
        source = write(folder / f"{split}.src.gz", rows)
        by_split[split] = (source, write(folder / f"{split}.tgt", [row[::-1] for row in rows]))
    return by_split


def stored(data_dir, split):
    return stored_texts(registry.problem("translate_files"), split, data_dir)


def generate(data_dir, source, **options):
    """Generates data of files by split or of a prepared dataset."""
    problem = registry.problem("translate_files")
    if isinstance(source, dict):
        problem.use_files(**{**source, **options})
    else:
        problem.use_tfds(str(source), **options)
    problem.generate_data(data_dir, data_dir)
    return problem


def contents(data_dir):
    return {path.name: path.read_bytes() for path in data_dir.iterdir()}


def refused(message, data_dir, source, **options):
    with pytest.raises(UserError, match=message):
        generate(data_dir, source, **options)


def turned(rows):
    """Pairs of rows and the same backwards, in the order of `stored`."""
    return sorted((row, row[::-1]) for row in rows)


def test_test_files_are_read_on_the_fly(files, tmp_path):
    problem = registry.problem("translate_files")
    problem.use_files(**files)
    batches = TextBatches(problem, "test", tmp_path, tmp_path, registry.hparams(toy.hparams()))
    assert sum(len(batch["targets"]) for batch in batches.dataset()) == 20
    refused("not from .* --sentencepiece=bpe: delete", tmp_path, files, sentencepiece="bpe")


def test_files_become_shards_and_a_vocabulary(files, tmp_path):
    rows = toy.rows(400, seed=0)
    write(files["train"][0], [*rows[:-2], "  ", "left out"])
    write(files["train"][1], [*(row[::-1] for row in rows[:-2]), "left out", ""])
    problem = generate(tmp_path / "data", files, vocab_size=50)
    assert stored(tmp_path / "data", "train") == turned(rows[:-2])
    for seed, split, count in ((1, "dev", 30), (2, "test", 20)):
        assert stored(tmp_path / "data", split) == turned(toy.rows(count, seed))
    names = [path.name for path in find_shards(tmp_path / "data", "translate_files", "train")]
    assert (names[0], len(names)) == ("translate_files-train-00000-of-00100", 100)
    assert (tmp_path / "data" / VOCABULARY).exists()
    assert problem.vocab_filename == VOCABULARY
    samples = list(problem.generate_samples(tmp_path, tmp_path, "train"))
    assert samples[0] == {"inputs": rows[0], "targets": rows[0][::-1]}
    assert problem.dropped == {"empty": 2}


def test_the_size_of_the_vocabulary_is_as_asked(files, tmp_path):
    for side, path in enumerate(files["train"]):
        write(path, [pair[side] for pair in islice(pairs("train"), 2000)])
    encoders = generate(tmp_path, files, vocab_size=300).get_feature_encoders(tmp_path)
    assert encoders["inputs"].vocab_size == pytest.approx(300, rel=0.1)


def test_data_that_is_there_needs_no_files(files, tmp_path):
    generate(tmp_path / "data", files)
    before = contents(tmp_path / "data")
    problem = registry.problem("translate_files_rev")
    problem.generate_data(tmp_path / "data", tmp_path)
    assert [item["split"] for item in problem.dataset_splits] == ["train", "dev", "test"]
    assert contents(tmp_path / "data") == before
    find_shards(tmp_path / "data", "translate_files", "dev")[0].unlink()
    with pytest.raises(UserError, match="translate_files has no source"):
        registry.problem("translate_files").generate_data(tmp_path / "data", tmp_path)


def test_the_same_files_again_change_nothing(files, tmp_path):
    generate(tmp_path / "data", files)
    before, moved = contents(tmp_path / "data"), tmp_path / "moved"
    files["train"][0].parent.rename(moved)
    files = {split: [moved / path.name for path in pair] for split, pair in files.items()}
    generate(tmp_path / "data", files)
    after = contents(tmp_path / "data")
    assert {name for name in after if after[name] != before[name]} == {NOTE}
    origin = json.loads(after[NOTE])["dev"]["from"]
    assert origin == f"{moved / 'dev.src.gz'} and {moved / 'dev.tgt'}"


def test_other_text_is_not_taken_for_what_is_there(files, tmp_path):
    data_dir, (source, target) = tmp_path / "data", files["train"]
    generate(data_dir, files)
    before = contents(data_dir)
    for changes, message in (
        ({"train": (target, source)}, r"the train in .* of translate_files was made from .*train.src.gz and .*train.tgt, not from .*train.tgt and .*train.src.gz: delete"),
        ({"dev": files["test"]}, r"the dev in .* was made from .*, not from .*test.src.gz and"),
        ({"vocab_size": 9}, r"the vocabulary in .* with --vocab_size=32768, not from .*=9:"),
        ({}, r"the test in .*test.tgt when its contents were different, not"),
    ):  # fmt: skip
        if not changes:
            write(files["test"][1], toy.rows(20, seed=9))
        refused(message, data_dir, files, **changes)
    assert contents(data_dir) == before


def test_neither_shards_without_a_note_nor_without_a_vocabulary_are_taken(files, tmp_path):
    generate(tmp_path / "data", files)
    (tmp_path / "data" / VOCABULARY).unlink()
    message = r"the vocabulary in .*=32768, not from .*=100:"
    refused(message, tmp_path / "data", files, vocab_size=100)
    (tmp_path / "data" / NOTE).unlink()
    refused(r"the train in .* was made from an unknown source", tmp_path / "data", files)


@pytest.mark.parametrize(
    ("note", "message"),
    [
        ('{"dev": 5}', ": dev must be an object, got 5"),
        ('{"dev": {"from": "a"}}', ": dev has no identity"),
    ],
)
def test_a_note_of_another_shape_is_one_line(files, tmp_path, note, message):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / NOTE).write_text(note)
    message = f"{re.escape(NOTE + message)}.*: delete it with the data beside it"
    refused(message, tmp_path / "data", files)


def test_a_vocabulary_that_was_put_there_is_used(files, tmp_path):
    generate(tmp_path / "one", files, vocab_size=60)
    given = (tmp_path / "one" / VOCABULARY).read_bytes()
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / VOCABULARY).write_bytes(given)
    for _ in range(2):
        generate(tmp_path / "two", files, train=files["dev"], test=None)  # which may be left out
        assert (tmp_path / "two" / VOCABULARY).read_bytes() == given


def test_dev_pairs_leave_the_training_data_with_their_copies(files, tmp_path):
    """They are the same wherever they are in the files, and of the whole pairs alone."""
    rows, dev = toy.rows(400, seed=0), []
    for name, lines in (("one", [*rows, "", *rows]), ("two", [*rows[::-1], "", ""])):
        train = write(tmp_path / f"{name}.src", lines), write(tmp_path / f"{name}.tgt", lines)
        flags = (f"--train_files={train[0]},{train[1]}", "--dev_pairs=30", "--vocab_size=60")
        command("datagen", tmp_path / name, *GENERATING, *flags)
        dev.append(stored(tmp_path / name, "dev"))
    assert dev[0] == dev[1] and len({*dev[0]}) == 30
    kept = [(row, row) for row in rows if (row, row) not in dev[0]]
    assert stored(tmp_path / "one", "train") == sorted(kept * 2)
    assert stored(tmp_path / "two", "train") == sorted(kept)
    options = {"dev": None, "vocab_size": 60}
    message = r"the train in .* with --dev_pairs=30, not from .* with --dev_pairs=31:"
    refused(message, tmp_path / "two", {"train": train}, dev_pairs=31, **options)
    once = {"train": [tmp_path / "once.en", tmp_path / "once.de"]}
    for path in once["train"]:
        path.write_text("a b c d\n" * 60)
    refused("only 1 pairs are different", tmp_path / "four", once, dev_pairs=2, **options)
    message = "dev_pairs=202 is over half of the pairs: give at most 201"
    refused(message, tmp_path / "three", files, train=train, dev_pairs=202, **options)


def test_lines_that_are_not_utf8_are_skipped_counted_and_named(files, tmp_path):
    """If asked, in pairs, and in training data alone."""
    rows, bad = toy.rows(400, seed=0), {2: 0, 5: 1, **dict.fromkeys(range(90, 96), 0)}
    for side, path in enumerate(files["train"]):
        wrong = [b"\0\n" if number == 5 else b"\xfc\n" for number in range(1, 401)]  # \0: UTF-16
        ends = (end if bad.get(number) == side else b"\n" for number, end in enumerate(wrong, 1))
        write_content(path, b"".join(map(bytes.__add__, map(str.encode, rows), ends)))
    given = [f"--{split}_files={source},{target}" for split, (source, target) in files.items()]
    given += [f"--data_dir={tmp_path / 'data'}", "--vocab_size=60", *GENERATING]
    assert "train.src.gz, line 2: not UTF-8" in toy.complaint(toy.command("datagen", *given))
    lines = toy.ran("datagen", *given, "--skip_bad_lines").stdout.splitlines()
    assert "    left out: 8 (8 not UTF-8 (line 2, 5, 90, 91, 92, ...)), kept: 392" in lines
    kept = [(row, row) for number, row in enumerate(rows, start=1) if number not in bad]
    assert stored(tmp_path / "data", "train") == sorted(kept)
    write_content(files["dev"][0], b"\xfc\n" * 30)
    said = toy.complaint(toy.command("datagen", *given, "--skip_bad_lines"))
    assert "dev.src.gz, line 1: not UTF-8" in said


# Datasets


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("prepared"))


def test_a_dataset_by_its_directory(dataset, tmp_path, monkeypatch):
    options = {"languages": ("en", "de"), "vocab_size": 200}
    for _ in range(2):
        generate(tmp_path / "data", dataset, **options)
    for split, part in (("train", "train"), ("dev", "validation"), ("test", "test")):
        numbers = range(tfds_datasets.SIZES[part])
        assert stored(tmp_path / "data", split) == [pair(part, number) for number in numbers]
    note = json.loads((tmp_path / "data" / NOTE).read_text())
    assert note["dev"]["from"] == "toy_translate/1.2.0 (en-de, validation)"
    message = r"the train in .* from toy_translate/1.2.0 \(en-de, train\)"
    refused(message, tmp_path / "data", dataset, languages=("de", "en"), vocab_size=200)

    def generate_examples(self, split, size):  # another dataset of the same name
        return ((n, {"de": f"anders {n}", "en": f"different {n}"}) for n in range(size))

    monkeypatch.setattr(tfds_datasets.ToyTranslate, "_generate_examples", generate_examples)
    other = prepare(tmp_path / "other")
    message = r"the train in .* was made from toy_translate.* when its contents were different, not"
    refused(message, tmp_path / "data", other, **options)


def test_a_dataset_without_dev_or_test(tmp_path, monkeypatch):
    monkeypatch.setattr(tfds_datasets, "SIZES", {"train": 50, "validation": 5})
    problem = generate(tmp_path / "data", prepare(tmp_path / "no_test"))
    assert [item["split"] for item in problem.dataset_splits] == ["train", "dev"]

    monkeypatch.setattr(tfds_datasets, "SIZES", {"train": 50, "test": 5})
    message = r"1.2.0 has no split 'validation', only train, test: .*train\[:99%\],train"
    refused(message, tmp_path / "other", prepare(tmp_path / "no_dev"))
    assert not (tmp_path / "other").exists()


# Several corpora


def corpus(tmp_path, name, train, dev=2):
    by_split = {}
    for split, count in (("train", train), ("dev", dev)):
        for side in ("source", "target") if count else ():
            lines = [f"{name}{split}{n} {side}" for n in range(count)]
            path = write(tmp_path / f"{name}.{split}.{side[0]}", lines)
            by_split.setdefault(split, []).append(str(path))
    return by_split


def read(tmp_path, listed):
    (tmp_path / "corpora.json").write_text(json.dumps(listed))
    return MixedCorpora.read(tmp_path / "corpora.json").corpora


def mix(tmp_path, **corpora):
    """A mix of corpora given as (pairs of training, weight, tag)."""
    return MixedCorpora(
        Corpus(ParallelFiles(corpus(tmp_path, name, train)), weight, tag)
        for name, (train, weight, tag) in corpora.items()
    )


@pytest.mark.parametrize(
    ("weights", "period"), [((3, 1), (3, 1)), ((0.5, 0.25), (2, 1)), ((0.3, 0.9), (1, 3))]
)
def test_the_ratio_is_exact_at_every_round(tmp_path, weights, period):
    found = mix(tmp_path, a=(20, weights[0], ""), b=(9, weights[1], "<2de>"))
    pairs = list(found.pairs("train"))
    for start in range(0, len(pairs), sum(period)):
        heads = Counter(source[0] for source, _ in pairs[start : start + sum(period)])
        assert heads == {"a": period[0], "<": period[1]}
    assert len({*pairs}) == 29  # every pair is there, and one corpus goes on as the other ends
    assert max(Counter(pairs).values()) - min(Counter(pairs).values()) <= len(pairs) // 9
    assert pairs == list(found.pairs("train"))


def test_without_weights_each_pair_comes_once_and_all_over(tmp_path):
    found = mix(tmp_path, a=(30, None, ""), b=(10, None, "<b>"), c=(5, None, ""))
    pairs = list(found.pairs("train"))
    assert len(pairs) == len({*pairs}) == 45
    for start in range(0, 45, 9):  # 6 : 2 : 1
        heads = [source.removeprefix("<b> ")[0] for source, _ in pairs[start : start + 9]]
        assert Counter(heads) == {"a": 6, "b": 2, "c": 1}
    dev = [source for source, _ in found.pairs("dev")]
    assert dev[2:4] == ["<b> bdev0 source", "<b> bdev1 source"]
    assert found.tags == ["<b>"]
    text = list(found.vocabulary_text("train", 10**6))
    assert sorted(text) == sorted(side for pair in pairs for side in pair)


def test_a_corpus_is_cleaned_before_it_is_tagged_and_mixed(tmp_path):
    listed = [{**corpus(tmp_path, name, 4), "weight": 1} for name in "ab"]
    listed[1] |= {"tag": "<b>", "clean": {"copies": True, "duplicates": True, "max_ratio": 3}}
    left_out = [("same", "same"), ("b", "fourth"), ("", "b"), ("twice", "twofold")]
    kept = [(f"b{n}", f"{n}b") for n in range(3)] + left_out[-1:]
    for split in ("train", "dev"):
        for path, lines in zip(listed[1][split], zip(*kept, *left_out, strict=True), strict=True):
            write(tmp_path / path, lines)
    problem = registry.problem("translate_files")
    problem.use_corpora(read(tmp_path, listed))
    for _ in range(2):  # again, a copy is a copy, and what came once comes again
        problem.dropped.clear()
        train = [sample["inputs"] for sample in problem.generate_samples("", tmp_path, "train")]
        assert train[1::2] == [f"<b> {inputs}" for inputs, _ in kept]
        reasons = ("copy", "unequal lengths", "empty", "duplicate")
        assert problem.dropped == dict.fromkeys(reasons, 1)
    problem.dropped.clear()
    assert len(list(problem.generate_samples("", tmp_path, "dev"))) == 2 + 7
    assert problem.dropped == {"empty": 1}


def test_corpora_by_a_flag_with_tags_that_are_pieces(tmp_path):
    pytest.importorskip("sentencepiece")
    listed = [
        {**corpus(tmp_path, "a", 12), "weight": 1, "tag": "<2de>"},
        {**corpus(tmp_path, "b", 4, dev=0), "weight": 1, "tag": "<2fr>"},
    ]
    (tmp_path / "corpora.json").write_text(json.dumps(listed))
    given = (f"--corpora={tmp_path / 'corpora.json'}", "--vocab_size=100", "--sentencepiece=bpe")
    command("datagen", tmp_path / "data", *GENERATING, *given)
    found = Counter(stored(tmp_path / "data", "train"))
    assert sum(found.values()) == 24
    assert {count for pair, count in found.items() if "atrain" in pair[0]} == {1}
    assert {count for pair, count in found.items() if "btrain" in pair[0]} == {3}
    encoder = registry.problem("translate_files").get_feature_encoders(tmp_path / "data")["inputs"]
    assert {"<2de>", "<2fr>"} <= {encoder.subtoken(i) for i in encoder.encode("<2de> a <2fr>")}
    note = json.loads((tmp_path / "data" / NOTE).read_text())
    assert note["train"]["from"].endswith("b.train.t (weight 1, <2fr>)")
    assert "--vocab_size=100" in str(note)
    problem = registry.problem("translate_files")
    listed[1]["weight"] = 2
    problem.use_corpora(read(tmp_path, listed), 100, "bpe")
    with pytest.raises(UserError, match=r"the train in .*\(weight 1, <2fr>\), not from .*weight 2"):
        problem.generate_data(tmp_path / "data", tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda listed: listed[1].pop("train"), r"\[1\] has no train, which weight and clean are"),
        (lambda listed: listed[0].pop("weight"), r"give all corpora a weight or none, got \[None, 1\]"),
        (lambda listed: listed[0].update(weight=0), r"must be from 0.001 to 1000, got \[0, 1\]"),
        (lambda listed: listed[0].update(wieght=1), r"\[0\] has an unknown 'wieght'.* mean 'weight'\?"),
        (lambda listed: listed[1].update(clean={"copies": 1}), r"\[1\].clean.copies must be true or false"),
        (lambda listed: listed[1].update(clean={"max_ratoi": 2}), r"\[1\].clean has an unknown 'max_ratoi'.* mean 'max_ratio'\?"),
        (lambda listed: listed[0].update(tag="<2 de>"), r"must be single words, got \['<2 de>'\]"),
        (lambda listed: listed[0].update(train=["a"]), r"\[0\].train takes a source and a target file"),
        (lambda listed: [item.pop("dev") for item in listed], r"no corpus has dev: name files for it"),
    ],
)  # fmt: skip
def test_mistakes_in_corpora_end_in_one_line(tmp_path, change, message):
    listed = [{**corpus(tmp_path, name, 5), "weight": 1} for name in "ab"]
    change(listed)
    with pytest.raises(UserError, match=message):
        read(tmp_path, listed)


def test_a_corpus_that_cannot_be_mixed(tmp_path):
    empty = mix(tmp_path, a=(3, 1, ""), b=(3, 1, "<b>"))
    write(tmp_path / "b.train.s", ["", " ", ""])
    message = r"the corpus .*b.train.s and .* has no pairs, or cleaning leaves none"
    with pytest.raises(UserError, match=message):
        list(empty.pairs("train"))
    with pytest.raises(UserError, match="translate_files_rev would put the tags on targets"):
        registry.problem("translate_files_rev").use_corpora(empty.corpora)


def command(name, data_dir, *arguments, **options):
    return toy.ran(name, f"--data_dir={data_dir}", *arguments, **options).stdout.splitlines()


def test_a_model_of_files_makes_pairs_for_others(files, tmp_path):
    """docs/back-translation.md: what it writes is mixed, cleaned and tagged, with real pairs."""
    data_dir, run = tmp_path / "data", f"--output_dir={tmp_path / 'run'}"
    generating = (*GENERATING, "--vocab_size=60")
    given = [f"--{split}_files={source},{target}" for split, (source, target) in files.items()]
    lines = command("datagen", data_dir, *generating, *given)
    assert lines[0] == f"translate_files: /tmp/t2t_datagen-{os.getuid()} -> {data_dir}"
    assert "  test: 20 examples in translate_files-test-00000-of-00001" in lines
    decoding = "--decode_hparams=beam_size=1,extra_length=1"
    hparams = f"--hparams={toy.hparams(num_hidden_layers=1)}"
    training = ("--problem=translate_files_rev", hparams, "--train_steps=2", "--eval_steps=1")
    command("train", data_dir, run, *training, decoding)
    assert json.loads((tmp_path / "run/run.json").read_text())["problem"] == "translate_files_rev"

    rows = toy.rows(30, seed=7)
    target, drawn = write(tmp_path / "mono.tgt.gz", [*rows, ""]), tmp_path / "mono.src"
    places = (f"--decode_from_file={target}", f"--decode_to_file={drawn}")
    command("decode", data_dir, run, *places, f"{decoding},sampling_method=random")
    sources = drawn.read_text().splitlines()
    real = {split: [*map(str, pair)] for split, pair in files.items()} | {"weight": 1}
    translated = {"train": [str(drawn), str(target)], "tag": "<bt>", "weight": 1}
    listed = [real, {**translated, "clean": {"max_ratio": 1.5}}]
    (tmp_path / "corpora.json").write_text(json.dumps(listed))
    mixing = (*generating, f"--corpora={tmp_path / 'corpora.json'}")
    lines = command("datagen", tmp_path / "mixed", *mixing)
    wanted = {
        (f"<bt> {source}", row)
        for source, row in zip(sources, rows, strict=False)
        if source.strip() and max(len(source), len(row)) <= 1.5 * min(len(source), len(row))
    }
    found = Counter(stored(tmp_path / "mixed", "train"))
    assert {pair for pair in found if pair[0].startswith("<bt>")} == wanted
    assert sum(count for pair, count in found.items() if pair in wanted) == 400
    assert any(f"left out: {31 - len(wanted)} (" in line for line in lines), lines


def test_a_dataset_by_name_and_flags(dataset, tmp_path):
    named = ("--tfds=toy_translate:1.2.0", "--languages=en,de", f"--tmp_dir={tmp_path}")
    splits, environment = "train[:99%],train[99%:]", {"TFDS_DATA_DIR": str(dataset.parents[1])}
    data_dir = tmp_path / "data"
    command("datagen", data_dir, *GENERATING, *named, f"--tfds_splits={splits}", env=environment)
    train, dev = (stored(data_dir, split) for split in ("train", "dev"))
    assert sorted(train + dev) == [pair("train", number) for number in range(200)]
    assert len(dev) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dev_pairs=5"], "--train_files=SOURCE,TARGET is missing, or give --tfds=NAME."),
        (["--train_files=a,b"], "give --dev_files=SOURCE,TARGET or --dev_pairs=N, one of"),
        (["--train_files=a,b", "--dev_files=c,d", "--dev_pairs=5"], "--dev_pairs=N, one of them"),
        (["--skip_bad_lines", "--tfds=x"], "--skip_bad_lines and --tfds are both given: leave one"),
        (["--train_files=a", "--dev_files=c,d"], "--train_files takes 2 items, separated by commas"),
        (["--train_files=a,b", "--dev_files=c,d", "--languages=en,de"], "--languages needs --tfds"),
        (["--corpora=x", "--tfds=y"], "--tfds and --corpora are both given: leave one out"),
        (["--corpora=x", "--clean_copies"], "--clean_copies and --corpora are both given: each corpus is cleaned"),
        (["--tfds=x", "--tfds_splits=train"], "--tfds_splits takes 2 or 3 items"),
        ([], "translate_files has no source: give --train_files="),
        (["--problem=translate_ende_numbers", "--vocab_size=9"], "--vocab_size is for --problem=translate_files, got --problem=translate_ende_numbers."),
    ],
)  # fmt: skip
def test_mistakes_end_in_one_line(tmp_path, arguments, message):
    given = ("--problem=translate_files", f"--data_dir={tmp_path / 'data'}", *arguments)
    assert message in toy.complaint(toy.command("datagen", *given))
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("problem", "message"),
    [("translate_files", "a source for generating data"), ("translate_ende", "for --problem=tran")],
)
def test_mistakes_in_training_end_in_one_line(tmp_path, problem, message):
    given = ("--train_files=a,b", "--dev_files=c,d", "--hparams=transformer_tiny")
    places = (f"--data_dir={tmp_path}", f"--output_dir={tmp_path}/run")
    done = toy.command("train", f"--problem={problem}", *given, *places)
    assert f"--train_files is {message}" in toy.complaint(done)


NUMBERS = [f"{number:04d}" for number in range(10_000)]  # 40,000 characters


@pytest.mark.parametrize(
    ("lines", "characters", "taken"),
    [
        *((lines, 3, lines) for lines in (["a", "", "bc"], [], ["", ""])),  # short: whole
        *((NUMBERS, 40_000, NUMBERS), (NUMBERS, 39_999, NUMBERS[1::2])),
        *((NUMBERS, 20_000, NUMBERS[1::2]), (NUMBERS, 4_000, NUMBERS[9::10])),
        (NUMBERS, 3_999, NUMBERS[10::11]),
        # By the first 1000 lines there are 2000 characters; later lines are longer.
        (["a"] * 1000 + ["b" * 100] * 1000, 1000, ["a"] * 500 + ["b" * 100] * 5),
    ],
)
def test_text_for_a_vocabulary_is_evenly_spaced(lines, characters, taken):
    assert [*evenly_spaced(lambda k: lines[k - 1 :: k], len(lines), characters)] == taken
