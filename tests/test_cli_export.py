"""t2t-keras-export on a run and on its average, loaded where there is no t2t_keras."""

import functools
import json
import shutil

import pytest
import toy

import t2t_keras

LINES = ["a b c", "h g f e d", "", "b b  a", "c"]
DECODE = "--decode_hparams=beam_size=2,extra_length=3,alpha=0.7"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of two steps."""
    directory = tmp_path_factory.mktemp("toy")
    toy.generate(directory)
    toy.train(directory, 2, "--eval_steps=1", DECODE)
    return directory


@pytest.fixture(scope="module")
def exported(run):
    done = toy.ran("export", f"--data_dir={run / 'data'}", f"--output_dir={run / 'run'}", DECODE)
    path = run / "run" / "export" / "1"
    assert done.stdout == (
        f"{path} has the signatures translate (serving_default), translate_with_options, "
        "translate_ids, score, serialized_example\n"
    )
    return path


def refusal(directory, *arguments):
    data_dir = f"--data_dir={directory / 'data'}"
    return toy.complaint(toy.command("export", data_dir, *arguments))


@functools.cache
def translations(path):
    """Returns the output of a process that has TensorFlow and a path."""
    program = f"""
import json, sys
sys.modules["t2t_keras"] = None
import tensorflow as tf
loaded = tf.saved_model.load({str(path)!r})
out = loaded.signatures["serving_default"](text=tf.constant({LINES!r}))
print(json.dumps([text.decode() for text in out["translation"].numpy()]))
"""
    done = toy.python("-c", program)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_text_is_that_of_the_decode_command(run, exported, tmp_path):
    (tmp_path / "source.txt").write_text("".join(line + "\n" for line in LINES))
    toy.ran(
        "decode",
        f"--output_dir={run / 'run'}",  # whose data_dir is found in run.json
        f"--decode_from_file={tmp_path / 'source.txt'}",
        f"--decode_to_file={tmp_path / 'target.txt'}",
        DECODE,
    )
    wanted = (tmp_path / "target.txt").read_text().split("\n")[:-1]
    assert translations(exported) == wanted
    files = "assets assets.extra fingerprint.pb saved_model.pb variables"
    assert sorted(path.name for path in exported.iterdir()) == files.split()


def test_load_gives_the_same_text_of_run_and_export(run, exported):
    """In Python; the vocabulary is found where training had it."""
    wanted = translations(exported)
    settings = DECODE.removeprefix("--decode_hparams=")
    assert t2t_keras.load(run / "run", decode_hparams=settings).translate(LINES) == wanted
    assert t2t_keras.load(run / "run" / "export").translate(LINES) == wanted


def test_a_checkpoint_without_a_run(run, exported, tmp_path):
    """As of T2T: no `run.json`, so the problem must be named."""
    for file in (run / "run").glob("model.ckpt-2.*"):
        shutil.copy(file, tmp_path)
    shutil.copy(run / "run" / "hparams.json", tmp_path)
    checkpoint = f"--checkpoint_path={tmp_path / 'model.ckpt-2'}"
    assert "--problem is missing" in refusal(run, checkpoint)
    done = toy.ran(
        "export",
        f"--data_dir={run / 'data'}",
        checkpoint,
        f"--problem={toy.PROBLEM}",
        f"--export_dir={tmp_path / 'served'}",
        "--version=20",
        "--precision=bfloat16",
        "--default_signature=serialized_example",
        "--nowarm_up",
    )
    path = tmp_path / "served" / "20"
    assert done.stdout.startswith(f"{path} has the signatures serialized_example (serving_default)")
    assert not (path / "assets.extra").exists()
    variables = "variables/variables.data-00000-of-00001"
    size, half = ((p / variables).stat().st_size for p in (exported, path))
    assert half < 0.6 * size


def test_ctranslate2(run, tmp_path):
    ctranslate2 = pytest.importorskip("ctranslate2")
    flags = ["--format=ctranslate2", f"--export_dir={tmp_path / 'model'}"]
    done = toy.ran("export", f"--data_dir={run / 'data'}", f"--output_dir={run / 'run'}", *flags)
    assert done.stdout == f"{tmp_path / 'model'} is a CTranslate2 model\n"
    assert ctranslate2.contains_model(str(tmp_path / "model"))
    assert len(t2t_keras.load(tmp_path / "model").translate(LINES)) == len(LINES)
    two = f"--checkpoint_path={run / 'run'},{run / 'run'}"
    assert "CTranslate2 does not support ensembles" in refusal(run, two, *flags)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--output_dir={run} --version=1", "/1 exists: give another version"),
        ("--output_dir={run} --precision=int4", "--precision=int4: value should be one of"),
        ("--output_dir={run} --format=onnx", "--format=onnx: value should be one of"),
        ("--output_dir={run} --format=ctranslate2 --version=3", "--version needs --format=saved_model, got --format=ctranslate2"),
        ("--output_dir={run} --export_directory=x", "Did you mean 'export_dir'?"),
        ("", "--output_dir is missing"),
    ],
)  # fmt: skip
def test_complains_in_one_line(run, exported, flags, expected):
    assert expected in refusal(run, *flags.format(run=run / "run").split())
