"""Problems of one text an example: what language models and classifiers learn from."""

import bz2
import gzip
import itertools

import numpy as np
import pytest
import tensorflow as tf
from corpus_files import stored_examples, write_archive, write_lines

from t2t_keras import data, registry
from t2t_keras.data import ChoppedTextProblem, Text2ClassProblem, Text2SelfProblem, VocabType
from t2t_keras.data.on_the_fly import TextBatches
from t2t_keras.data.records import pack
from t2t_keras.data.shards import find_shards
from t2t_keras.data.text_problem import TextConcat2ClassProblem
from t2t_keras.errors import UserError
from t2t_keras.problems import language_models
from t2t_keras.settings import HParams

WORDS = ["ab", "abc", "a", "abcd", "b b", "c"]
HP = HParams().replace(batch_size=32, max_length=8, min_length_bucket=4)


class Toy:
    is_generate_per_split = True
    vocab_type = VocabType.CHARACTER
    dataset_splits = [{"split": "train", "shards": 2}, {"split": "dev", "shards": 1}]


class ToyLines(Toy, Text2SelfProblem):
    def generate_samples(self, data_dir, tmp_dir, split):
        return ({"targets": word} for word in WORDS * 4)


class ToyChopped(Toy, ChoppedTextProblem):
    sequence_length = 5
    max_dev_chars = 7

    def documents(self, tmp_dir, split):
        return iter(["abcdef", "ghijkl"])


class ToyClasses(Toy, Text2ClassProblem):
    num_classes = 3
    inputs_prefix = "not in T2T's examples of classes"

    def generate_samples(self, data_dir, tmp_dir, split):
        return ({"inputs": word, "label": len(word) % 3} for word in WORDS * 4)


def stored(problem, data_dir, split):
    return list(stored_examples(*find_shards(data_dir, problem.dataset_filename(), split)))


def batches(problem, split, data_dir, hp=HP):
    return [*data.dataset(problem, split, data_dir, hp).take(20).as_numpy_iterator()]


def letters(rows):
    return sorted("".join(chr(i - 2) for i in row if i > 1) for row in rows)


def test_a_language_model_stores_and_reads_targets_alone(tmp_path):
    problem = ToyLines()
    problem.generate_data(tmp_path, tmp_path)
    for example in stored(problem, tmp_path, "dev"):
        assert example.keys() == {"targets"}
        assert example["targets"][-1] == 1
    assert problem.get_hparams(None, tmp_path).vocab_size == {"targets": 258}
    on_the_fly = TextBatches(problem, "dev", tmp_path, tmp_path, HP).dataset()
    for read in (batches(problem, "dev", tmp_path), [*on_the_fly.as_numpy_iterator()]):
        assert all(batch.keys() == {"targets"} for batch in read)
        assert letters(row for batch in read for row in batch["targets"]) == sorted(WORDS * 4)
    shapes = {batch["targets"].shape for batch in batches(problem, "train", tmp_path)}
    assert shapes <= {*data.bucket_shapes(HP)}


def test_targets_alone_are_packed_and_cut_as_by_tensor2tensor():
    """By hand, after T2T's `pack_examples` with `chop_long_sequences`: ten ids in rows of four."""
    examples = [{"targets": [*range(2, 12)]}, {"targets": [12, 1]}]
    rows = [[*row.values()] for row in pack(examples, 4)]
    assert [row[1] for row in rows] == [[2, 3, 4, 5], [6, 7, 8, 9], [10, 11, 12, 1]]
    assert rows[-1] == [[0], [10, 11, 12, 1], [1, 1, 2, 2], [0, 1, 0, 1]]
    whole = [[2, 3, 4, 1], [2, 3, 4, 5] * 2]
    rows = [row["targets"] for ids in whole for row in pack([{"targets": ids}], 4)]
    assert rows == [[2, 3, 4, 1], [2, 3, 4, 5], [2, 3, 4, 5]]


def test_chopped_text_is_one_stream_of_examples_as_long_as_the_problem_says(tmp_path):
    problem = ToyChopped()
    problem.generate_data(tmp_path, tmp_path)
    pieces = {"train": ["abcde", "fghij", "kl"], "dev": ["abcde", "fg"]}  # dev: 7 characters
    for split, texts in pieces.items():
        assert letters(example["targets"] for example in stored(problem, tmp_path, split)) == texts
    hp = HP.replace(max_length=2)
    assert max(batch["targets"].shape[1] for batch in batches(problem, "train", tmp_path, hp)) == 5
    t2t_s = batches(problem, "train", tmp_path, hp.replace(t2t_batches=True))
    assert {batch["targets"].shape for batch in t2t_s} == {(16, 5)}  # 32 // 2 rows
    (tmp_path / "text.gz").write_bytes(gzip.compress(b" a  b"))
    assert [*problem.filepath_to_unicode_strings(tmp_path / "text.gz")] == [" a  b"]
    with pytest.raises(UserError, match=r"Cannot read .*absent: No such file"):
        next(problem.filepath_to_unicode_strings(tmp_path / "absent"))
    (tmp_path / "targets.train.txt").write_text(" a  b\n\nc\n")
    assert [*registry.problem("text2self_tmpdir").lines(tmp_path, "train")] == [" a  b", "c"]


def test_classes_are_stored_and_read_as_single_numbers(tmp_path):
    problem = ToyClasses()
    problem.generate_data(tmp_path, tmp_path)
    assert problem.get_hparams(None, tmp_path).vocab_size == {"inputs": 258, "targets": 3}
    assert (problem.loss_multiplier, ToyLines().loss_multiplier) == (1, 2)
    found = set()
    for split in ("train", "dev"):
        for batch in batches(problem, split, tmp_path):
            assert batch["targets"].shape == (len(batch["inputs"]), 1)
            for row, (label,) in zip(*batch.values(), strict=True):
                found.add((*letters([row]), int(label)))
    assert found == {(word, len(word) % 3) for word in WORDS}
    labels = problem.get_feature_encoders(tmp_path)["targets"]
    assert labels.decode([2]) == "ID_2"
    assert labels.encode("ID_1") == 1
    with pytest.raises(UserError, match=r"class must be one of ID_0, ID_1, ID_2, .*got 'ID_4'"):
        labels.encode("ID_4")


def test_mistakes_in_a_problem_are_reported(tmp_path):
    class Wrong(ToyClasses):
        def generate_samples(self, data_dir, tmp_dir, split):
            yield {"inputs": "ab", "label": 3}

    class Joined(TextConcat2ClassProblem, Wrong):
        pass

    for kind in (Wrong, Joined):
        with pytest.raises(UserError, match="has the label 3; it must be from 0 to 2"):
            kind().generate_data(tmp_path, tmp_path)
    Wrong.class_labels = lambda *_: ["a", "b"]
    with pytest.raises(UserError, match="wrong has 3 num_classes but 2 class_labels"):
        Wrong().get_feature_encoders(tmp_path)
    for name, suffix in (("languagemodel_ptb10k", "_rev"), ("sentiment_imdb", "_copy")):
        with pytest.raises(UserError, match=f"has no pairs of texts: drop {suffix}"):
            registry.problem(name + suffix)


def test_vocabulary_of_joined_texts_is_from_those_of_t2t():
    class Joined(TextConcat2ClassProblem):
        max_samples_for_vocab = 2

        def generate_samples(self, data_dir, tmp_dir, split):
            return ({"inputs": [f"a{i}", f"b{i}"], "label": 0} for i in range(4))

    assert [*Joined().generate_text_for_vocab("", "")] == ["a0", "b0", "a1", "a2", "a3"]
    Joined.max_samples_for_vocab = -1
    with pytest.raises(UserError, match="max_samples_for_vocab of joined must be"):
        list(Joined().generate_text_for_vocab("", ""))


def test_penn_treebank_by_its_archive(tmp_path):
    parts = {"train": b" the <unk> of the\n of \n", "valid": b" of the\n"}
    parts["char.valid"] = b" o f _ t h e \n"
    members = {f"./simple-examples/data/ptb.{part}.txt": text for part, text in parts.items()}
    write_archive(tmp_path / "simple-examples.tgz", members)
    problem = registry.problem("languagemodel_ptb10k")
    problem.generate_data(tmp_path, tmp_path)
    words = (tmp_path / "vocab.lmptb.10000").read_text().split()
    assert words == ["<pad>", "<EOS>", "of", "the", "<unk>"]
    assert [example["targets"] for example in stored(problem, tmp_path, "dev")] == [[2, 3, 1]]
    characters = registry.problem("languagemodel_ptb_characters")
    samples = list(characters.generate_samples(tmp_path, tmp_path, "dev"))
    assert samples == [{"targets": "o f _ t h e <EOS>"}]  # T2T's


def test_paragraphs_together_leave_out_the_last_ones_as_in_tensor2tensor(monkeypatch):
    paragraphs = ["a b", "c d", "e f g h i", "j", "k"]
    problem = registry.problem("languagemodel_wikitext103_l4k")
    monkeypatch.setattr(type(problem), "sequence_length", 6)
    monkeypatch.setattr(type(problem), "lines", lambda *arguments: iter(paragraphs))
    samples = problem.generate_samples("", "", "dev")
    assert [sample["targets"] for sample in samples] == ["a b c d", "e f g h i"]


def test_the_billion_words_have_the_published_vocabulary(tmp_path):
    folder = tmp_path / language_models._LM1B
    write_lines(tmp_path / "vocab-2016-09-10.txt.en", ["a", "dog"])
    train = "training-monolingual.tokenized.shuffled/news.en-00001-of-00100"
    held_out = "heldout-monolingual.tokenized.shuffled/news.en.heldout-00000-of-00050"
    write_lines(folder / train, ["a cat"])
    write_lines(folder / held_out, ["a dog , barking"])
    (tmp_path / f"{language_models._LM1B}.tar.gz").touch()
    names = [registry.problem(f"languagemodel_lm1b8k{e}").vocab_filename for e in ("", "_packed")]
    assert names == ["vocab.languagemodel_lm1b8k.8192.subwords"] * 2
    problem = registry.problem("languagemodel_lm1b_characters_packed")
    for split, text in (("train", "a UNK"), ("dev", "a dog UNK UNK")):
        assert list(problem.generate_samples(tmp_path, tmp_path, split)) == [{"targets": text}]


def test_wikipedia_is_cut_into_parts_and_cleaned(tmp_path, monkeypatch):
    """The rules of T2T's `wiki.py`, by hand."""
    tea = "'''Tea''' is a [[drink|hot drink]].&lt;ref name=a&gt;Book&lt;/ref&gt; [[File:a.png]]"
    pages = {"Tea": tea + "x" * 140, "Talk:Tea": "y" * 200}
    pages |= {"Short": "#REDIRECT".ljust(140), "Open": "z" * 150 + "[[not closed"}
    xml = "".join(
        f"  <page>\n    <title>{title}</title>\n    <text bytes=1>{text}</text>\n  </page>\n"
        for title, text in pages.items()
    )
    (tmp_path / "enwiki-20171201-pages-articles.xml.bz2").write_bytes(bz2.compress(xml.encode()))
    problem = registry.problem("languagemodel_wiki_noref_v32k_l1k")
    assert (problem.vocab_filename, problem.sequence_length) == ("vocab.wiki_noref.32768", 1024)
    (text,) = problem.documents(tmp_path, "dev")  # a first part alone
    tea = "Tea is a hot drink. " + "x" * 140
    assert text == f'title: "Tea" length: 160\n{tea}\ntitle: "Open" length: 150\n{"z" * 150}\n'
    assert not list(problem.documents(tmp_path, "train"))
    monkeypatch.setattr(language_models, "_PART", 300)
    parts = list(language_models._parts(tmp_path / "enwiki-20171201-pages-articles.xml.bz2"))
    assert b"".join(parts) == xml.encode()
    assert all(part.endswith(b"\n") and len(part) <= 300 for part in parts)


def test_film_reviews_of_tensorflow_datasets(tmp_path, monkeypatch):
    rows = {"train": [("good", 1), ("bad", 0)] * 3, "test": [("dull", 0)]}

    class Builder:
        def as_dataset(self, split):
            texts, labels = zip(*rows[split], strict=True)
            return tf.data.Dataset.from_tensor_slices({"text": [*texts], "label": [*labels]})

    monkeypatch.setattr(data.tfds, "_prepared_builder", lambda name, tmp_dir: Builder())
    problem = registry.problem("sentiment_imdb_characters")
    problem.generate_data(tmp_path, tmp_path)
    for split, pairs in (("train", [("bad", 0)] * 3 + [("good", 1)] * 3), ("dev", [("dull", 0)])):
        examples = stored(problem, tmp_path, split)
        assert sorted((*letters([e["inputs"]]), *e["targets"]) for e in examples) == pairs
    assert problem.get_feature_encoders(tmp_path)["targets"].decode([1]) == "pos"
    reviews = type("Reviews", (data.TfdsSelfProblem,), {"tfds_name": "imdb_reviews"})()
    samples = list(reviews.generate_samples(tmp_path, tmp_path, "train"))
    assert samples[:2] == [{"targets": "good"}, {"targets": "bad"}]
    reviews.tfds_feature = "texts"
    with pytest.raises(UserError, match="no text 'texts' in imdb_reviews"):
        list(reviews.generate_samples(tmp_path, tmp_path, "train"))


def test_the_numbers_as_text_and_classes():
    problem = registry.problem("quantity_en_numbers")
    samples = list(itertools.islice(problem.generate_samples("", "", "dev"), 50))
    labels = problem.class_labels()
    assert labels == ["cardinal", "ordinal", "count", "age", "year", "date", "time", "price"]
    assert len({sample["label"] for sample in samples}) > 4
    texts = registry.problem("languagemodel_en_numbers").generate_samples("", "", "dev")
    assert [s["targets"] for s in itertools.islice(texts, 50)] == [s["inputs"] for s in samples]
    assert np.isin([s["label"] for s in samples], range(8)).all()
