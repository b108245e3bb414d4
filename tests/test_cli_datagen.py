"""The command t2t-keras-datagen, run as users run it."""

import os
import stat
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import toy
from corpus_files import write_lines, write_shards

from t2t_keras.cli import options
from t2t_keras.errors import UserError


def read_shards(data_dir):
    return [path.read_bytes() for path in sorted(data_dir.glob("*-of-*"))]


@pytest.fixture
def text(tmp_path):
    for side in ("inputs", "targets"):
        write_lines(tmp_path / f"text/{side}.train.txt", ["one two", "three four", "five"] * 100)
        write_lines(tmp_path / f"text/{side}.eval.txt", ["six", "six"])
    return tmp_path / "text"


USER_PROBLEM = """
from t2t_keras import data, registry

@registry.register_problem
class CountDown(data.Text2TextProblem):
    vocab_type = data.VocabType.CHARACTER
    is_generate_per_split = True
    dataset_splits = [{"split": "train", "shards": 1}]

    def generate_samples(self, data_dir, tmp_dir, split):
        for number in range(40):
            yield {"inputs": str(number), "targets": str(40 - number)}
"""


def usr_dir(tmp_path, code=USER_PROBLEM):
    return f"--t2t_usr_dir={write_lines(tmp_path / 'mine/__init__.py', code.splitlines()).parent}"


def test_writes_and_tells_what_it_wrote(text, tmp_path):
    data_dir, problems = tmp_path / "data", "--problem=text2text_tmpdir_rev,count_down"
    flags = (f"--data_dir={data_dir}", f"--tmp_dir={text}", usr_dir(tmp_path))
    lines = toy.ran("datagen", problems, *flags).stdout.splitlines()
    vocabulary = (data_dir / "vocab.text2text_tmpdir.32768.subwords").read_text().splitlines()
    assert lines[:4] == [
        f"text2text_tmpdir_rev: {text} -> {data_dir}",
        f"  vocabulary: {len(vocabulary)} tokens in vocab.text2text_tmpdir.32768.subwords",
        "  train: 300 examples in text2text_tmpdir-train-00000-of-00100 to 00099-of-00100",
        "    ids: 800 inputs (2.7 per pair), 800 targets (2.7 per pair)",
    ]
    after = lines.index("  dev: 2 examples in text2text_tmpdir-dev-00000-of-00001")
    assert lines[after + 1 :] == [
        "    ids: 26 inputs (13.0 per pair), 26 targets (13.0 per pair)",
        f"count_down: {text} -> {data_dir}",
        "  vocabulary: 258 tokens in no file",
        "  train: 40 examples in count_down-train-00000-of-00001",
        "    ids: 110 inputs (2.8 per pair), 111 targets (2.8 per pair)",
        "    length of the longer side, pairs:",
        "        3 -    3          40 ########################################",
        "    rows x ids, pairs, padding:",
        "      512 x 8              40  65.5%",
        "    all: 65.5% padding; a batch has 2,829 ids, 1,421 of them targets",
    ]


def test_an_encoder_of_a_user_directory_works_in_several_processes(text, tmp_path):
    more = """
    def get_or_create_encoders(self, data_dir, tmp_dir):
        return {"inputs": Lengths(), "targets": Lengths()}

class Lengths:
    def encode(self, text):
        return [len(text)]
"""
    code = USER_PROBLEM.replace("range(40)", "range(20000)") + more
    flags = ("--problem=count_down", usr_dir(tmp_path, code), f"--tmp_dir={text}")
    done = toy.ran("datagen", *flags, f"--data_dir={tmp_path}", "--num_concurrent_processes=2")
    assert "    ids: 40,000 inputs (2.0 per pair), 40,000 targets" in done.stdout


def test_a_problems_own_seed_and_cleaning_count_without_flags(text, tmp_path):
    own = "random_seed = 7\n    cleaning = CleaningRules(copies=True)\n    vocab_type ="
    code = USER_PROBLEM.replace("vocab_type =", own)
    code = f"from t2t_keras.data.generation import CleaningRules\n{code}"
    flags = ("--problem=count_down", usr_dir(tmp_path, code), f"--tmp_dir={text}")
    shards, seeds = {}, {"own": [], "own again": [], "7": ["--random_seed=7"]}
    for name, more in {**seeds, "8": ["--random_seed=4294967295"]}.items():
        data_dir = tmp_path / name.split()[0]
        done = toy.command("datagen", *flags, f"--data_dir={data_dir}", *more)
        assert (done.returncode, done.stderr) == (0, "")
        assert "  train: 39 examples in" in done.stdout
        shards[name] = read_shards(data_dir)
    assert shards["own"] == shards["own again"] == shards["7"] != shards["8"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"problem": ""}, "--problem is missing: give one or more of languagemodel_en_numbers, "),
        ({"data_dir": ""}, "--data_dir is missing"),
        ({"data_dir": "{text}/inputs.train.txt/data"}, "cannot be created (Not a directory)"),
        ({"tmp_dir": "{text}/nothing"}, "inputs.train.txt"),
        ({"clean_max_ratio": "0.5"}, "max_ratio is 0.5; it must be 1 or more, or 0 for none"),
        ({"num_concurrent_processes": "0"}, "0 is not an integer in the range [1, 1024]"),
        ({"problme": "x"}, "unknown flag --problme. Did you mean 'problem'?"),
    ],
)
def test_mistakes_end_in_one_line(text, tmp_path, changes, message):
    flags = {"problem": "text2text_tmpdir", "data_dir": tmp_path / "data", "tmp_dir": text}
    flags.update({name: value.format(text=text) for name, value in changes.items()})
    done = toy.command("datagen", *(f"--{name}={value}" for name, value in flags.items()))
    assert message in toy.complaint(done)
    assert not list((tmp_path / "data").glob("*"))


def test_training_data_is_cleaned_once(text, tmp_path):
    """Settings without effect on shards that exist get a line."""
    arguments = ("--problem=text2text_tmpdir", f"--data_dir={tmp_path}", f"--tmp_dir={text}")
    arguments += ("--num_concurrent_processes=1",)
    settings = ("--clean_duplicates", "--clean_max_characters=9", "--random_seed=7")
    first = toy.command("datagen", *arguments, *settings)
    assert (first.returncode, first.stderr) == (0, "")
    assert "    left out: 298 (198 duplicate, 100 too long), kept: 2" in first.stdout.splitlines()
    assert "  dev: 2 examples in" in first.stdout
    made = read_shards(tmp_path)
    (tmp_path / "text2text_tmpdir-dev-00000-of-00001").unlink()
    assert toy.ran("datagen", *arguments, *settings).stderr.splitlines() == [
        f"text2text_tmpdir: {tmp_path} has the train shards already, so cleaning (--clean_...) and "
        "random_seed=7 has no effect: delete them to regenerate them"
    ]
    assert read_shards(tmp_path) == made
    assert toy.command("datagen", *arguments).stderr == ""


@pytest.mark.parametrize(
    ("code", "line", "message"),
    [
        ("yield {'inputs': int('x')}", 10, "generate_samples, raised ValueError: invalid literal"),
        ("yield None + 1", 10, "generate_samples, raised TypeError: unsupported operand"),
        ("raise SystemExit(0)", 10, "generate_samples, raised SystemExit: 0"),
        ("yield {}\n    approx_vocab_size = property(lambda self: {}[0])", 11, "raised KeyError: 0"),
        ("def __init__(self):\n        pass", 0, "'was_reversed': give it the arguments that ten"),
    ],
)  # fmt: skip
def test_an_error_of_a_users_problem_is_one_line(text, tmp_path, code, line, message):
    module = f"""from t2t_keras import data, registry


@registry.register_problem
class Mine(data.Text2TextProblem):
    is_generate_per_split = True

    def generate_samples(self, data_dir, tmp_dir, split):
        pass
    {"    " * bool(line)}{code}
"""
    flags = (f"--data_dir={tmp_path / 'data'}", usr_dir(tmp_path, module), f"--tmp_dir={text}")
    said = toy.complaint(toy.command("datagen", "--problem=mine", *flags))
    start = f"{tmp_path / 'mine/__init__.py'}:{line}, in " if line else "Mine.__init__() got an "
    assert said.startswith(f"t2t-keras-datagen: {start}")
    assert message in said


def test_the_directory_of_sources_is_by_default_private(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(options, "FLAGS", SimpleNamespace(tmp_dir=None))
    path = Path(options.tmp_dir())
    assert path == tmp_path / f"t2t_datagen-{os.getuid()}"
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    path.chmod(0o777)
    assert options.tmp_dir() == str(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    path.rmdir()
    path.symlink_to(tmp_path)
    with pytest.raises(UserError, match="is not a directory of yours: give --tmp_dir"):
        options.tmp_dir()
    options.FLAGS.tmp_dir = "~/raw"
    assert options.tmp_dir() == os.path.expanduser("~/raw")


def test_an_error_of_a_users_problem_read_on_the_fly_is_one_line(text, tmp_path):
    late = "int('x') if number == 39 else number"
    code = USER_PROBLEM.replace('"inputs": str(number)', f'"inputs": str({late})')
    flags = ("--problem=count_down", usr_dir(tmp_path, code), f"--tmp_dir={text}", "--on_the_fly")
    places = (f"--data_dir={tmp_path}", f"--output_dir={tmp_path / 'run'}")
    done = toy.command("train", *flags, *places, f"--hparams={toy.hparams(max_length=16)}")
    line = f"{tmp_path / 'mine/__init__.py'}:12, in generate_samples, raised ValueError: invalid"
    assert toy.complaint(done).startswith(f"t2t-keras-train: {line}")


def test_an_id_beyond_the_vocabulary_is_one_line_of_inspect(tmp_path):
    (path,) = write_shards(tmp_path, "count_down", "train", [{"inputs": [300, 1], "targets": [1]}])
    flags = (f"--data_dir={tmp_path}", usr_dir(tmp_path), "--problem=count_down")
    done = toy.command("inspect", "data", *flags, f"--hparams={toy.hparams(batch_size=16)}")
    line = f"Example 1 of the shard {path} has the id 300 in its inputs, whose ids are 0 to 257: "
    assert toy.complaint(done).startswith(f"t2t-keras-inspect: {line}")
