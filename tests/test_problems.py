"""Problems: their names, their vocabularies, and the data they generate from raw text."""

import re

import pytest
from corpus_files import stored_texts as stored, write_lines

from t2t_keras import registry
from t2t_keras.data import Problem, SpaceID, Text2TextProblem, TranslateProblem, VocabType
from t2t_keras.data.on_the_fly import stored_encoders
from t2t_keras.data.shards import find_shards
from t2t_keras.data.sources import local_sources
from t2t_keras.data.translate import TwoVocabularyProblem
from t2t_keras.errors import UserError
from t2t_keras.text import ByteTextEncoder, TokenTextEncoder

ENGLISH = ["A dog runs.", "A cat sleeps.", "Two dogs run.", "The cat and the dog.", "A man."]
GERMAN = ["Ein Hund läuft.", "Eine Katze schläft.", "Zwei Hunde laufen.", "Katze, Hund.", "Mann."]
PAIRS = sorted(zip(ENGLISH, GERMAN, strict=True))
SPLITS = [{"split": "train", "shards": 2}, {"split": "dev", "shards": 1}]


class ToyPairs(Text2TextProblem):
    """Samples in memory, characters."""

    is_generate_per_split = True
    vocab_type = VocabType.CHARACTER
    dataset_splits = SPLITS

    def generate_samples(self, data_dir, tmp_dir, split):
        for number in range(6 if split == "train" else 3):
            yield {"inputs": f"{split} {number}", "targets": f"{number}"}


class ToyFiles(TranslateProblem):
    """Two files in tmp_dir for training and dev alike."""

    approx_vocab_size = 64
    dataset_splits = SPLITS

    def source_data_files(self, split):
        return [["", ("a.en", "a.de")]]


@pytest.fixture
def folders(tmp_path):
    write_lines(tmp_path / "tmp" / "a.en", ENGLISH)
    write_lines(tmp_path / "tmp" / "a.de", GERMAN)
    return tmp_path / "data", tmp_path / "tmp"


# Names and directions


@pytest.mark.parametrize(
    ("flags", "name"),
    [((), "toy_files"), ((True,), "toy_files_rev"), ((False, True), "toy_files_copy")],
)
def test_names(flags, name):
    problem = ToyFiles(*flags)
    assert problem.name == name
    assert problem.dataset_filename() == "toy_files"
    assert problem.filepattern("/data", "dev") == "/data/toy_files-dev-*"
    assert problem.vocab_filename == "vocab.toy_files.64.subwords"


def shards_of(problem):
    return {item["split"]: item["shards"] for item in problem.dataset_splits}


def test_defaults_are_those_of_tensor2tensor():
    problem = Text2TextProblem()
    assert problem.vocab_filename == "vocab.text2_text_problem.32768.subwords"
    assert shards_of(problem) == {"train": 100, "dev": 1}
    assert problem.max_subtoken_length == 200
    assert problem.space_ids == (0, 0)


@pytest.mark.parametrize(
    ("flags", "inputs", "targets"),
    [
        ((), ("english", 3), ("german", 8)),
        ((True,), ("german", 8), ("english", 3)),
        ((False, True), ("english", 3), ("english", 3)),
    ],
)
def test_reversal_and_copy_change_encoders_and_spaces(flags, inputs, targets):
    class TwoVocabularies(Problem):
        space_ids = (SpaceID.EN_TOK, SpaceID.DE_TOK)

        def feature_encoders(self, data_dir):
            return {"inputs": english, "targets": german}

    english, german = TokenTextEncoder(vocab_list=["a"]), TokenTextEncoder(vocab_list=["b", "c"])
    of_problem = TwoVocabularies(*flags).get_hparams(None, "")
    names = {english: "english", german: "german"}
    encoders = of_problem.vocabulary
    assert (names[encoders["inputs"]], of_problem.input_space_id) == inputs
    assert (names[encoders["targets"]], of_problem.target_space_id) == targets
    assert of_problem.vocab_size == {side: each.vocab_size for side, each in encoders.items()}


@pytest.mark.parametrize(
    ("base", "hook", "call"),
    [
        (Problem, "generate_data", lambda problem: problem.generate_data("", "")),
        (Problem, "feature_encoders", lambda problem: problem.get_feature_encoders("")),
        (Text2TextProblem, "is_generate_per_split", lambda problem: problem.is_generate_per_split),
        (Text2TextProblem, "generate_samples", lambda p: p.generate_samples("", "", "dev")),
        (TranslateProblem, "source_data_files", lambda problem: problem.source_data_files("dev")),
    ],
)
def test_a_hook_that_is_not_defined(base, hook, call):
    with pytest.raises(UserError, match=f"has no {hook}: its class {base.__name__} must define it"):
        call(base())


# Vocabularies


def test_vocabulary_is_built_once_and_then_read(folders, monkeypatch):
    data_dir, tmp_dir = folders
    data_dir.mkdir()
    texts = ["one .\n two .\r three ."] * 60  # its file has the subword ".\n" on two lines
    monkeypatch.setattr(ToyFiles, "generate_text_for_vocab", lambda *_: texts)
    built = ToyFiles().get_or_create_vocab(data_dir, tmp_dir)
    assert [path.name for path in data_dir.iterdir()] == ["vocab.toy_files.64.subwords"]
    monkeypatch.setattr(ToyFiles, "generate_text_for_vocab", None)
    read = ToyFiles().get_or_create_vocab(data_dir, tmp_dir)
    assert read.all_subtoken_strings == built.all_subtoken_strings


def test_absent_vocabulary_and_a_directory_that_cannot_be_made(folders):
    with pytest.raises(UserError, match="cannot be created"):
        ToyPairs().generate_data(folders[1] / "a.en" / "data", folders[1])
    with pytest.raises(UserError, match="run t2t-keras-datagen --problem=toy_files --data_dir="):
        ToyFiles(was_reversed=True).get_feature_encoders(folders[0])


def test_vocabulary_of_another_problem_and_reserved_tokens(folders):
    class Marked(ToyFiles):
        additional_reserved_tokens = ["<2de>"]

    class Borrower(Marked):
        use_vocab_from_other_problem = Marked()

    class Speller(Borrower):
        vocab_type = VocabType.CHARACTER

    data_dir, tmp_dir = folders
    assert type(Speller().get_or_create_vocab(data_dir, tmp_dir)) is ByteTextEncoder  # as in T2T
    Borrower().generate_data(data_dir, tmp_dir)
    assert [path.name for path in data_dir.glob("vocab*")] == ["vocab.marked.64.subwords"]
    assert Borrower().vocab_filename == "vocab.marked.64.subwords"
    tokens = Marked().get_or_create_vocab(data_dir, tmp_dir).all_subtoken_strings
    assert tokens[:3] == ("<pad>_", "<EOS>_", "<2de>_")  # spelled as T2T does


def test_words_of_a_given_list(folders):
    class Words(ToyFiles):
        vocab_type = VocabType.TOKEN
        oov_token = "<UNK>"

    data_dir, tmp_dir = folders
    with pytest.raises(UserError, match=r"vocab\.words\.tokens is absent: place the list of words"):
        Words().generate_data(data_dir, tmp_dir)
    write_lines(data_dir / "vocab.words.tokens", ["<pad>", "<EOS>", "<UNK>", "A", "dog"])
    assert Words().get_or_create_vocab(data_dir, tmp_dir).encode("A big dog") == [3, 2, 4]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_vocabulary_sample_of_a_big_file(tmp_path, suffix):
    """T2T's rule by hand: of 3e6 bytes skip int(3 / 2) = 1 line before each; 99 characters a line
    leave 1 of the million after 10,101 lines, so one more is taken."""

    class Big(ToyFiles):
        def source_data_files(self, split):
            return [["", ("big" + suffix, "small")]]

    lines = [f"{number:099d}" for number in range(30_000)]
    write_lines(tmp_path / ("big" + suffix), lines)
    write_lines(tmp_path / "small", [""] * 30_000)
    taken = [line for line in Big().generate_text_for_vocab("", tmp_path) if line]
    assert taken == lines[1::2][:10_102]


def test_samples_for_the_vocabulary_can_be_limited():
    class Few(ToyPairs):
        max_samples_for_vocab = 2

    assert list(Few().generate_text_for_vocab("", "")) == ["train 0", "0", "train 1", "1"]
    Few.max_samples_for_vocab = 0  # no limit, as in T2T
    assert len(list(Few().generate_text_for_vocab("", ""))) == 12


# Generating


def test_what_exists_is_left_alone(folders, monkeypatch):
    data_dir, tmp_dir = folders
    ToyPairs().generate_data(data_dir, tmp_dir)
    before = {path: path.stat().st_mtime_ns for path in data_dir.iterdir()}
    splits, samples = [], ToyPairs.generate_samples
    monkeypatch.setattr(
        ToyPairs, "generate_samples", lambda *given: splits.append(given[-1]) or samples(*given)
    )
    ToyPairs().generate_data(data_dir, tmp_dir)
    assert splits == []
    first, second = find_shards(data_dir, "toy_pairs", "train")
    [dev] = find_shards(data_dir, "toy_pairs", "dev")
    second.unlink()
    message = re.escape("holds 1 of 2 shards of toy_pairs (train): copy the missing")
    with pytest.raises(UserError, match=message):
        ToyPairs().generate_data(data_dir, tmp_dir)
    assert first.stat().st_mtime_ns == before[first]
    assert {*data_dir.iterdir()} == {*before} - {second}
    first.unlink()
    splits.clear()
    ToyPairs().generate_data(data_dir, tmp_dir)
    assert splits == ["train"]
    assert dev.stat().st_mtime_ns == before[dev]
    assert {*data_dir.iterdir()} == {*before}


class ToySides(TwoVocabularyProblem, ToyFiles):
    vocab_filenames = ("toy.inputs", "toy.targets")


@pytest.mark.parametrize(
    ("problem", "name"), [(ToyFiles, "vocab.toy_files.64.subwords"), (ToySides, "toy.targets")]
)
@pytest.mark.parametrize("is_whole", [True, False])
def test_shards_without_their_vocabulary_get_no_other_one(folders, problem, name, is_whole):
    data_dir, tmp_dir = folders
    made = problem()
    made.generate_data(data_dir, tmp_dir)
    (data_dir / name).unlink()
    if not is_whole:
        find_shards(data_dir, made.name, "dev")[0].unlink()
    before = {*data_dir.iterdir()}
    message = rf"holds {made.name}-train-00000-of-00002 but not its vocabulary {name}: copy the"
    for call in (made.generate_data, lambda *places: stored_encoders(made, *places)):
        with pytest.raises(UserError, match=message):
            call(data_dir, tmp_dir)
    assert {*data_dir.iterdir()} == before


def test_encoders_of_ones_own_need_no_vocabulary_file(folders):
    class Bytes(ToyFiles):
        def get_or_create_encoders(self, data_dir, tmp_dir):
            return self.feature_encoders(data_dir)

        def feature_encoders(self, data_dir):
            return {"inputs": ByteTextEncoder(), "targets": ByteTextEncoder()}

    for _ in range(2):
        Bytes().generate_data(*folders)
    assert list(folders[0].glob("vocab*")) == []


def test_text2text_tmpdir(tmp_path):
    for side, lines in (("inputs", ENGLISH), ("targets", GERMAN)):
        write_lines(tmp_path / f"{side}.train.txt", [f"  {line} " for line in lines])
        write_lines(tmp_path / f"{side}.eval.txt", lines[:1])
    problem = registry.problem("text2text_tmpdir")
    problem._tmp_dir_override, problem.approx_vocab_size = tmp_path, 2.0**15
    problem.generate_data(tmp_path / "data", tmp_path / "other")
    assert stored(problem, "train", tmp_path / "data") == PAIRS
    assert stored(problem, "dev", tmp_path / "data") == [(ENGLISH[0], GERMAN[0])]
    assert problem.vocab_filename == "vocab.text2text_tmpdir.32768.subwords"
    assert shards_of(problem) == {"train": 100, "dev": 1}


def test_text2text_tmpdir_tokens(tmp_path):
    for side, lines in (("inputs", ["a dog", "a bird"]), ("targets", ["ein Hund", "ein Vogel"])):
        write_lines(tmp_path / f"{side}.train.txt", lines)
        write_lines(tmp_path / f"{side}.eval.txt", lines[:1])
    problem = registry.problem("text2text_tmpdir_tokens")
    data_dir = tmp_path / "data"
    with pytest.raises(UserError, match=r"Cannot read .*vocab\.txt"):
        problem.generate_data(data_dir, tmp_path)
    write_lines(tmp_path / "vocab.txt", ["<pad>", "<EOS>", "a ", "dog", "ein", "Hund"])
    with pytest.raises(UserError, match="run t2t-keras-datagen --problem=text2text_tmpdir_tokens"):
        problem.get_feature_encoders(data_dir)
    problem.generate_data(data_dir, tmp_path)
    vocabulary = (data_dir / "vocab.text2text_tmpdir_tokens.tokens").read_text()
    assert vocabulary.split("\n") == ["<pad>", "<EOS>", "<UNK>", "a", "dog", "ein", "Hund", ""]
    assert stored(problem, "train", data_dir) == [("a <UNK>", "ein <UNK>"), ("a dog", "ein Hund")]
    write_lines(tmp_path / "vocab.txt", ["a", "", "<UNK>", "", "dog"])
    vocabulary = problem.get_or_create_vocab(tmp_path, tmp_path)
    assert (vocabulary.encode("bird dog"), vocabulary.vocab_size) == ([4, 6], 7)
    write_lines(tmp_path / "vocab.txt", ["a", "dog", "a "])
    with pytest.raises(UserError, match=r"vocab\.txt, line 3: 'a' is already on line 1"):
        problem.words(tmp_path)


@pytest.mark.parametrize(("name", "target"), [("ende", "de"), ("enfr", "fr")])
def test_multi30k_reads_the_files_of_the_corpus(tmp_path, name, target):
    for language, lines in (("en", ENGLISH), (target, GERMAN)):
        for part in ("train", "val", "test_2016_flickr"):
            write_lines(tmp_path / f"{part}.{language}.gz", lines)
    problem = registry.problem(f"translate_{name}_multi30k_rev")
    problem.generate_data(tmp_path / "data", tmp_path)
    assert shards_of(problem) == {"train": 10, "dev": 1, "test": 1}
    for split in shards_of(problem):
        assert stored(problem, split, tmp_path / "data") == sorted(p[::-1] for p in PAIRS)
    assert problem.vocab_filename == f"vocab.translate_{name}_multi30k.4096.subwords"


def test_sources_that_are_not_parallel_give_no_data(folders):
    data_dir, tmp_dir = folders
    write_lines(tmp_dir / "a.de", GERMAN[1:])
    with pytest.raises(UserError, match=r"a\.en has 5 lines and .*a\.de has 4: "):
        ToyFiles().generate_data(data_dir, tmp_dir)
    assert list(data_dir.iterdir()) == []


def test_absent_files_are_fetched(tmp_path):
    for name in ("a.en", "a.de"):
        write_lines(tmp_path / "remote" / name, [name])
    urls = tuple((tmp_path / "remote" / name).as_uri() for name in ("a.en", "a.de"))
    tmp_dir = tmp_path / "tmp"
    write_lines(tmp_dir / "a.de", ["mine"])
    english, german = local_sources(tmp_dir, [[urls, ("a.en", "a.de")]])[0].paths
    assert (english.read_text(), german.read_text()) == ("a.en\n", "mine\n")
    assert sorted(path.name for path in tmp_dir.iterdir()) == ["a.de", "a.en"]
