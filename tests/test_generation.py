"""Cleaning by each rule; generation that depends neither on processes nor on interruptions.

TensorFlow is imported where it is used: the processes that encode import this module.
"""

import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from t2t_keras.data import Text2TextProblem, VocabType, generation, generator_utils
from t2t_keras.data.generation import Cleaner, CleaningRules, read_counts
from t2t_keras.data.records import pack
from t2t_keras.data.shards import read_index
from t2t_keras.errors import UserError

# Cleaning


def pair(inputs, targets):
    return {"inputs": inputs, "targets": targets}


@pytest.mark.parametrize(
    ("rule", "kept", "dropped", "reason"),
    [
        ({"max_characters": 5}, ("äöüßé", "x"), ("x", "äöüßé!"), "too long"),
        ({"max_ratio": 2}, ("abcd", "xy"), ("ab", "vwxyz"), "unequal lengths"),
        ({"max_ratio": 2}, ("ab", "abcd"), ("", "x"), "unequal lengths"),
        ({"min_letters": 0.5}, ("a b 12", "дом"), ("fine", "a 123"), "few letters"),
        ({"min_letters": 0.5}, ("家", "हिन्दी में"), ("...", "fine"), "few letters"),
        ({"copies": True}, ("same", "Same"), ("same", "same"), "copy"),
    ],
)
def test_each_rule(rule, kept, dropped, reason):
    cleaner = Cleaner(CleaningRules(**rule))
    assert cleaner.keep([pair(*kept), pair(*dropped)]) == [pair(*kept)]
    assert cleaner.dropped == {reason: 1}


def test_duplicates_are_found_across_calls_and_within_one():
    generator, cleaner = random.Random(1), Cleaner(CleaningRules(duplicates=True))
    samples = [pair(str(generator.randrange(3000)), "x") for _ in range(10_000)]
    kept = [s for i in range(0, 10_000, 700) for s in cleaner.keep(samples[i : i + 700])]
    first_of_each = list({sample["inputs"]: sample for sample in samples}.values())
    assert kept == first_of_each
    assert cleaner.dropped == {"duplicate": 10_000 - len(first_of_each)}
    # Those that differ in one side are none.
    others = [pair("a", "b"), pair("a", "c"), pair("d", "b"), pair("ab", ""), pair("", "ab")]
    assert cleaner.keep(others) == others


@pytest.mark.parametrize(
    ("rule", "value", "allowed"),
    [("max_characters", -1, "0 or more"), ("max_ratio", 0.5, "1 or"), ("min_letters", 2, "from 0")],
)
def test_impossible_rules(rule, value, allowed):
    with pytest.raises(UserError, match=f"{rule} is {value}; it must be {allowed}"):
        CleaningRules(**{rule: value})


# Shards


class Digits(Text2TextProblem):
    is_generate_per_split = True
    vocab_type = VocabType.CHARACTER
    dataset_splits = [{"split": "train", "shards": 5}]
    numbers = 1000

    def generate_samples(self, data_dir, tmp_dir, split):
        for number in range(self.numbers):
            yield {"inputs": str(number), "targets": str(number**2)}


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(generation, "PIECE_EXAMPLES", 64)


def generate(problem, directory):
    """Generates data; returns the content of each file by name."""
    problem.generate_data(directory, directory)
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def examples(path):
    from corpus_files import stored_examples

    return list(stored_examples(*sorted(path.parent.glob(path.name))))


def text(ids):
    return "".join(chr(i - 2) for i in ids if i > 1)


@pytest.mark.parametrize("prefix", ["", "square "])
@pytest.mark.parametrize("ordered", [False, True])
def test_shards_hold_what_tensor2tensor_deals_them(tmp_path, ordered, prefix):
    """Example i in shard i modulo 5, in an order that depends on the seed and the shard's name."""
    problem = Digits()
    problem.already_shuffled, problem.inputs_prefix = ordered, prefix
    others = {name for name in generate(problem, tmp_path) if "-of-" not in name}
    assert others == {"counts.digits-train.json", "index.digits-train.npz"}
    for number in range(5):
        path = tmp_path / f"digits-train-{number:05d}-of-00005"
        expected = [f"{prefix}{n}" for n in range(number, 1000, 5)]
        if not ordered:
            random.Random(f"429459 {path.name}").shuffle(expected)
        assert [text(example["inputs"]) for example in examples(path)] == expected


def test_neither_processes_nor_pieces_change_a_shard(tmp_path, monkeypatch):
    problem, expected = Digits(), generate(Digits(), tmp_path)
    for processes, size in ((3, 64), (1, 7), (1, 5000)):
        problem.processes = processes
        monkeypatch.setattr(generation, "PIECE_EXAMPLES", size)
        assert generate(problem, tmp_path / str(size)) == expected


def test_the_index_is_what_the_shards_hold(tmp_path):
    generate(Digits(), tmp_path)
    with mock.patch("t2t_keras.data.shards._measure", side_effect=AssertionError):
        stored = read_index(tmp_path, "digits", "train")
    (tmp_path / "index.digits-train.npz").unlink()
    measured = read_index(tmp_path, "digits", "train")
    assert stored.counts.tolist() == [200] * 5
    np.testing.assert_equal(stored._replace(made_with="")._asdict(), measured._asdict())


class Encoded(Digits):
    processes = 2
    inputs_prefix = property(lambda self: 1 / 0)  # is not read

    def generate_encoded_samples(self, data_dir, tmp_dir, split):
        yield None  # T2T leaves it out
        for number in range(200):
            yield {"inputs": [number + 2, 1], "targets": [1], "label": [number % 2]}


class Again(Digits):
    """Fills the same array and list again."""

    def generate_encoded_samples(self, *arguments):
        ids, classes = np.zeros(2, np.int64), []
        for number in range(200):
            ids[:], classes[:] = (number + 2, 1), [number % 2]
            yield {"inputs": ids, "targets": [1], "label": classes}


@pytest.mark.parametrize("problem", [Encoded, Again])
def test_a_generator_of_ids_is_stored_as_it_is(tmp_path, problem):
    generate(problem(), tmp_path)
    stored = examples(tmp_path / "*-of-*")
    assert sorted(e["inputs"][0] for e in stored) == list(range(2, 202))
    assert all(e["label"] == [e["inputs"][0] % 2] for e in stored)


def test_shards_of_packed_problems_have_their_examples_in_rows(tmp_path):
    class Packed(Digits):
        packed_length, packed_spacing = 64, 1

        def generate_samples(self, *arguments):
            return (sample | {"idx": [1]} for sample in super().generate_samples(*arguments))

    def ids(number):
        return [*(ord(digit) + 2 for digit in str(number)), 1]

    generate(Packed(), tmp_path)
    path, numbers = tmp_path / "packed-train-00003-of-00005", [*range(3, 1000, 5)]
    random.Random(f"429459 {path.name}").shuffle(numbers)
    pairs = [pair(ids(n), ids(n**2)) for n in numbers]
    assert examples(path) == list(pack(pairs, 64, 1))
    plain = [generator_utils.to_example(each).SerializeToString() for each in pairs]
    assert Packed()._pack_fn()(plain) == generator_utils.read_records(str(path))


def test_what_is_left_out_is_counted_and_reported(tmp_path):
    class Gaps(Digits):
        def generate_samples(self, data_dir, tmp_dir, split):
            for number in range(300):
                if number % 3:
                    yield {"inputs": str(number // 30), "targets": "x"}
                else:
                    self.dropped["empty"] += 1
            self.dropped["empty"] += 5  # after the last of a piece

    problem = Gaps()
    problem.cleaning = CleaningRules(duplicates=True)
    generate(problem, tmp_path)
    counts = read_counts(tmp_path, "gaps", "train")
    assert counts.kept == 10
    assert counts.dropped == {"empty": 105, "duplicate": 190}
    index = read_index(tmp_path, "gaps", "train")
    assert generation.describe_split(tmp_path, "gaps", "train", index) == [
        "  train: 10 examples in gaps-train-00000-of-00005 to 00004-of-00005",
        "    left out: 295 (190 duplicate, 105 empty), kept: 10",
        "    ids: 20 inputs (2.0 per pair), 20 targets (2.0 per pair)",
    ]
    bar = f"    2 -    2          10 {'#' * 40}"
    assert generation.length_histogram(index.lengths) == ["length of the longer side, pairs:", bar]


@pytest.mark.parametrize(
    "content", ["", '{"kept"', '{"kept": 7}', '{"kept": 7, "dropped": {"empty": "x"}}']
)
def test_damaged_counts_are_none(tmp_path, content):
    (tmp_path / "counts.digits-train.json").write_text(content)
    assert read_counts(tmp_path, "digits", "train") is None


class Given(Digits):
    """Samples that are given, for all splits or each."""

    dataset_splits = [{"split": "train", "shards": 3}, {"split": "dev", "shards": 1}]
    is_generate_per_split = False
    samples: list | None = [pair("1", "one")] * 8

    def generate_samples(self, data_dir, tmp_dir, split):
        return self.samples


def with_sample(sample):
    return {"samples": [pair("1", "one"), sample, pair("1", "one")]}


def with_text(value):
    return with_sample(pair("1", value))


TEXT = "^'targets' in train sample 2 of given must be text that UTF-8 can hold, got "
FIELDS = "^A train sample of given has no 'targets'; every sample needs the fields inputs, targ"
SHARDS = "^the number of train shards of given must be an integer from 1 to 99999, got "
VOCABULARY = {"vocab_type": VocabType.SUBWORD, "approx_vocab_size": 50}


@pytest.mark.parametrize("vocabulary", [{}, VOCABULARY], ids=["bytes", "subwords"])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (with_text(float("nan")), TEXT + "nan"),
        (with_text(b"one"), TEXT + "b'one'"),
        (with_text("\ud83d"), TEXT + r"'\\ud83d'"),
        (with_text("\ud83d") | {"cleaning": CleaningRules(duplicates=True)}, TEXT),
        (with_sample({"inputs": "1"}), FIELDS),
        (with_sample({"inputs": "1"}) | {"cleaning": CleaningRules(copies=True)}, FIELDS),
        ({"samples": [pair("1", "2") | {"idx": 3}, pair("1", "2")]}, "lack one of the fields inputs, targets, idx"),
        (with_sample(None), "^train sample 2 of given must be a dict of fields, got None"),
        ({"samples": None}, "^the train samples of given must be an iterable of dicts, got None"),
        ({"dataset_splits": [{"split": "train", "shards": "3"}]}, SHARDS + "'3'"),
        ({"dataset_splits": [{"split": "eval", "shards": 1}]}, "must be one of train, dev, test, got 'eval'"),
        ({"max_samples_for_vocab": -1, **VOCABULARY}, "max_samples_for_vocab of given must be an integer of at least 0, got -1"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_users_problem_is_one_line(
    tmp_path, monkeypatch, vocabulary, changes, message
):
    for name, value in (vocabulary | changes).items():
        monkeypatch.setattr(Given, name, value, raising=False)
    with pytest.raises(UserError, match=message):
        generate(Given(), tmp_path)


@pytest.mark.parametrize("cleaning", [None, CleaningRules(max_characters=2, duplicates=True)])
def test_held_out_samples_of_one_set_are_not_cleaned(tmp_path, monkeypatch, cleaning):
    """Every fourth sample is dev's; without cleaning, and for dev with it, shards are T2T's."""
    numbers = [*range(0, 2000, 7), *range(20)]
    monkeypatch.setattr(Given, "samples", [pair(str(n), "x") for n in numbers])
    monkeypatch.setattr(Given, "cleaning", cleaning)
    generate(Given(), tmp_path)
    stored = {
        split: sorted(int(text(x["inputs"])) for x in examples(tmp_path / f"given-{split}-0*"))
        for split in ("train", "dev")
    }
    train = [n for i, n in enumerate(numbers) if i % 4 < 3]
    if cleaning:
        train = {n for n in train if n < 100}
    assert stored == {"train": sorted(train), "dev": sorted(numbers[3::4])}


def test_encoded_samples_have_the_same_fields(tmp_path):
    class Ragged(Encoded):
        processes = 1

        def generate_encoded_samples(self, *arguments):
            yield from super().generate_encoded_samples(*arguments)
            yield {"inputs": [2, 1], "targets": [1]}

    with pytest.raises(UserError, match="no 'label'; every sample needs the fields inputs, "):
        generate(Ragged(), tmp_path)


def test_nothing_to_write(tmp_path):
    problem = Digits()
    problem.cleaning = CleaningRules(min_letters=1.0)
    with pytest.raises(UserError, match=r"left out .*few letters 1,000"):
        generate(problem, tmp_path)
    assert list(tmp_path.iterdir()) == []


# Stopped and started again

COMMAND = """
import sys, time
from t2t_keras.data import generation
from tests.test_generation import Slow

if __name__ == "__main__":
    generation.PIECE_EXAMPLES = 64
    wrapped = getattr(generation, sys.argv[2])
    def slowly(*arguments):
        time.sleep(0.1)
        return wrapped(*arguments)
    setattr(generation, sys.argv[2], slowly)
    Slow().generate_data(sys.argv[1], sys.argv[1])
"""


class Slow(Digits):
    numbers = 3000


@pytest.mark.parametrize(
    ("where", "killed_at"),
    [("write_piece", "unfinished.slow-train/0*"), ("read_segment", "slow-*")],
)
def test_killed_and_run_again(tmp_path, where, killed_at):
    """SIGKILL among the pieces, then among the shards: what is there stays, the rest is the same."""
    whole, data_dir = generate(Slow(), tmp_path / "expected"), tmp_path / "data"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, "-c", COMMAND, str(data_dir), where]
    process = subprocess.Popen(command, env=environment)

    def whole_files():
        return [path for path in data_dir.glob(killed_at) if path.suffix != ".incomplete"]

    deadline = time.monotonic() + 120
    while len(whole_files()) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = {path: path.stat().st_mtime_ns for path in whole_files()}
    assert 2 <= len(done) < (5 if where == "read_segment" else 47)

    encoded = mock.Mock(wraps=generation._make_piece)
    finished = mock.Mock(wraps=generation._make_shard)
    with mock.patch.multiple(generation, _make_piece=encoded, _make_shard=finished):
        Slow().generate_data(data_dir, data_dir)
    if where == "write_piece":
        assert 0 < encoded.call_count <= 47 - len(done)
    else:
        assert (encoded.call_count, finished.call_count) == (0, 5 - len(done))
        assert all(path.stat().st_mtime_ns == time for path, time in done.items())
    assert {path.name: path.read_bytes() for path in data_dir.iterdir()} == whole


@pytest.mark.parametrize("split", ["train", "dev"])
def test_a_resumed_generation_draws_the_same_random_numbers(tmp_path, split):
    """Also if the vocabulary, whose making draws numbers too, is there already."""

    class Drawn(Digits):
        vocab_type = VocabType.SUBWORD
        approx_vocab_size = 30
        dataset_splits = [{"split": split, "shards": 1} for split in ("train", "dev")]

        def generate_samples(self, data_dir, tmp_dir, split):
            for _ in range(50):
                yield {"inputs": str(random.random()), "targets": str(np.random.rand())}

    whole = generate(Drawn(), tmp_path)
    assert whole["drawn-train-00000-of-00001"] != whole["drawn-dev-00000-of-00001"]
    (tmp_path / f"drawn-{split}-00000-of-00001").unlink()
    assert generate(Drawn(), tmp_path) == whole
    killed = mock.patch("t2t_keras.data.shards.write_index", side_effect=KeyboardInterrupt)
    with killed, pytest.raises(KeyboardInterrupt):
        generate(Drawn(), tmp_path / "ended")
    assert generate(Drawn(), tmp_path / "ended") == whole  # with the vocabulary's digest


def test_pieces_of_another_text_are_not_used(tmp_path):
    class Interrupted(Digits):
        name = "digits"

        def generate_samples(self, data_dir, tmp_dir, split):
            for sample in super().generate_samples(data_dir, tmp_dir, split):
                if sample["inputs"] == "900":
                    raise KeyboardInterrupt
                yield {**sample, "targets": "other"}

    with pytest.raises(KeyboardInterrupt):
        generate(Interrupted(), tmp_path)
    assert len(list(tmp_path.glob("unfinished.*/*"))) == 14
    assert generate(Digits(), tmp_path) == generate(Digits(), tmp_path / "again")


def test_two_at_once_make_the_data_once(tmp_path):
    class Waiting(Digits):
        begun = []
        goes_on = threading.Event()

        def generate_samples(self, data_dir, tmp_dir, split):
            self.begun.append(self)
            assert self.goes_on.wait(60)
            yield from super().generate_samples(data_dir, tmp_dir, split)

    threads = [threading.Thread(target=generate, args=(Waiting(), tmp_path)) for _ in range(2)]
    for thread in threads:
        thread.start()
    threads[1].join(0.5)
    Waiting.goes_on.set()
    for thread in threads:
        thread.join()
    assert len(Waiting.begun) == 1
    assert {path.name[:5] for path in tmp_path.iterdir()} == {"count", "index", "waiti"}


def test_the_index_of_earlier_shards_is_gone_before_there_are_new_ones(tmp_path):
    """They may have the same sizes, and their generation may be stopped before the index."""
    generate(Digits(), tmp_path)
    for path in tmp_path.glob("*-of-*"):
        path.unlink()
    write_index = mock.patch("t2t_keras.data.shards.write_index", side_effect=KeyboardInterrupt)
    with write_index, pytest.raises(KeyboardInterrupt):
        generate(Digits(), tmp_path)
    assert not (tmp_path / "index.digits-train.npz").exists()


def test_no_room(tmp_path):
    """A limit on the size of files stands for a full disk: one line, no half-written shard."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(UserError, match=r"^.* cannot be written to .*make room there.*$"):
            generate(Digits(), tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.glob("*-of-*")) == []
    generate(Digits(), tmp_path)
    assert len(list(tmp_path.glob("digits-train-*-of-00005"))) == 5


def test_an_error_of_users_code_is_not_one_of_ours(tmp_path):
    class Unreadable(Digits):
        def generate_samples(self, data_dir, tmp_dir, split):
            yield from super().generate_samples(data_dir, tmp_dir, split)
            open(tmp_dir / "absent")

    line = Unreadable.generate_samples.__code__.co_firstlineno + 2
    message = (
        rf"making the train samples of .* failed at {__file__}:{line}: FileNotFoundError: .*absent"
    )
    with pytest.raises(UserError, match=message):
        generate(Unreadable(), tmp_path)


class Deadly:
    def encode(self, text):
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_is_killed(tmp_path):
    problem, encoders = Digits(), {"inputs": Deadly(), "targets": Deadly()}
    problem.processes, problem.get_or_create_encoders = 2, lambda *directories: encoders
    message = "One of 2 processes was killed, perhaps for lack of memory"
    with pytest.raises(UserError, match=message):
        generate(problem, tmp_path)
