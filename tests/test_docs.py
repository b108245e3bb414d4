"""Every code block of README.md and docs/ does what the page says, in the order of the page.

Commands run as they stand, in a shell, but for what `PAGES` replaces: fewer steps of smaller networks.
Blocks that cannot run say so in a comment, and why; their flags and names must exist all the same.
"""

import contextlib
import gzip
import importlib
import inspect
import itertools
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import golden
import make_release
import pytest
import t2t_release
import toy
from markdown_blocks import LANGUAGES, ROOT, blocks, commands, indented_lines

from t2t_keras import t2t_names
from t2t_keras.text import SubwordTextEncoder

DOCS = sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))
ALL = ["README.md", *DOCS, "examples/quickstart.ipynb"]
TINY = "num_hidden_layers=1,hidden_size=16,filter_size=16,num_heads=2,batch_size=512"
QUICK_DECODING = "beam_size=1,extra_length=0"
DECODE = f"--decode_hparams={QUICK_DECODING}"
WEATHER = ("train.en", "train.fr", "dev.en", "dev.fr")
ONE_STEP = f"--train_steps=1 --local_eval_frequency=1 --eval_steps=1 {DECODE}"


class Page(NamedTuple):
    """Settings for running the blocks of a page."""

    replace: dict[str, str] = {}  # everywhere on the page, to make work smaller
    after: str = ""  # the page whose files are there at the beginning
    files: tuple[str, ...] = ()  # that the reader has: see `write_file`
    prepare: Callable[[Path], None] = lambda directory: None  # puts there what else the reader has
    needs: str = "t2t_keras"  # a package


def write_file(path):
    """Writes what a reader has of his own: text, a sentence a line."""
    lines = toy.rows(40, seed=len(path.name))
    path.parent.mkdir(parents=True, exist_ok=True)
    with (gzip.open if path.suffix == ".gz" else open)(path, "wt") as file:
        file.write("\n".join(lines) + "\n")


def write_files_of_t2t_user(directory):
    """Writes a model of T2T's, its data, and the directory that the page shows."""
    t2t_release.write(directory)
    (directory / "mine").mkdir()
    (shown,) = (b.code for b in blocks("docs/from-tensor2tensor.md") if "register_" in b.code)
    (directory / "mine/__init__.py").write_text(shown)


PAGES = {
    "README.md": Page(
        replace={
            "--hparams=transformer_numbers": f"--hparams=transformer_numbers,{TINY}",
            "--train_steps=1000 --local_eval_frequency=200": ONE_STEP,
            "--num_last_checkpoints=3": "--num_last_checkpoints=1",
            "--decode_to_file": f"{DECODE},batch_size=500 --decode_to_file",
            'hparams("transformer_numbers")': f'hparams("transformer_numbers,{TINY}")',
            "beam_size=4, alpha=0.6, extra_length=50": "beam_size=4, alpha=0.6, extra_length=1",
            't2t.load("run")': f't2t.load("run", decode_hparams="{QUICK_DECODING}")',
        }
    ),
    "docs/command-line.md": Page(
        after="README.md",
        replace={
            "in 0.4 0.6 0.8 1;": "in 0.6;",
            "beam_size=4,alpha=$alpha": "beam_size=1,extra_length=0,alpha=$alpha",
        },
    ),
    "docs/extending.md": Page(
        replace={
            "--hparams=transformer_sorting": f"--hparams=transformer_sorting,{TINY}",
            "--train_steps=1000 --local_eval_frequency=250": ONE_STEP,
            "--decode_from_file": f"{DECODE} --decode_from_file",
        }
    ),
    "examples/quickstart.ipynb": Page(
        needs="matplotlib",
        replace={
            "--hparams=transformer_numbers": f"--hparams=transformer_numbers,{TINY}",
            "--train_steps=1000 --local_eval_frequency=250": ONE_STEP,
            "beam_size=4,alpha=0.6": QUICK_DECODING,
            'dollars.")': 'dollars.", "Der Mantel")',
            "return_beams=True, extra_length=10": "return_beams=True, extra_length=1",
            "t2t-keras-export": "t2t-keras-export --nowarm_up",
        },
    ),
    "docs/from-tensor2tensor.md": Page(
        files=("test.en", *(f"raw/weather.{name}" for name in WEATHER)),
        prepare=write_files_of_t2t_user,
        replace={
            "--hparams_set=transformer_w": f"--hparams={TINY} --hparams_set=transformer_w",
            "--train_steps=100000": ONE_STEP,
            "--decode_to_file": f"{DECODE} --decode_to_file",
            "--export_dir": f"--nowarm_up {DECODE} --export_dir",
            'data_dir="t2t_data")': f'data_dir="t2t_data", decode_hparams="{QUICK_DECODING}")',
        },
    ),
    "docs/inspect.md": Page(after="README.md"),
    "docs/your-own-text.md": Page(
        files=("train.en", "train.de", "new.en", "reference.de"),
        replace={
            "--vocab_size=4000": "--vocab_size=100",
            "--dev_pairs=500": "--dev_pairs=5",
            "--hparams=transformer_multi30k": f"--hparams=transformer_multi30k,{TINY}",
            "--train_steps=4000 --local_eval_frequency=500": ONE_STEP,
            "--decode_hparams=beam_size=1,extra_length=30": "",
            "--num_last_checkpoints=3": "--num_last_checkpoints=1",
            "--decode_to_file": f"{DECODE} --decode_to_file",
            "--export_dir": f"--nowarm_up {DECODE} --export_dir",
        },
    ),
    "docs/keras.md": Page({"EPOCHS = 10": "EPOCHS = 1", "10_500": "564"}),
    "docs/serving.md": Page(
        after="README.md",
        needs="ctranslate2",
        replace={"--decode_hparams=beam_size=4,alpha=0.6,extra_length=50": f"--nowarm_up {DECODE}"},
    ),
}


@pytest.fixture(scope="module")
def run_page(tmp_path_factory):
    """Runs the blocks of a page, once, and returns the directory in which it did."""
    done = {}

    def run(name):
        if name not in done:
            page = PAGES.get(name, Page())
            pytest.importorskip(page.needs)
            done[name] = None  # should it fail, so will those after it
            directory = tmp_path_factory.mktemp(Path(name).stem)
            if page.after:
                shutil.copytree(run(page.after), directory, dirs_exist_ok=True, symlinks=True)
            with contextlib.suppress(FileExistsError):
                (directory / "examples").symlink_to(ROOT / "examples")
            for file in page.files:
                write_file(directory / file)
            page.prepare(directory)
            for block in blocks(name):
                if not is_left_out(block):
                    run_block(block, page, directory)
            done[name] = directory
        assert done[name], f"{name} has failed"
        return done[name]

    return run


def run_block(block, page, directory):
    code, programs = block.code, toy.programs()
    for old, new in page.replace.items():
        code = code.replace(old, new)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(directory)}
    options = {"cwd": directory, "env": environment}
    lines = re.sub(r"\\\n", " ", code).splitlines()
    needs_no_shell = r"""(echo "[^"]*" \| )?t2t-[^|<>&;$*#`]+|python -c '[^']*'"""
    if block.language == "python":
        runs = [["python", "-c", code]]
    elif all(re.fullmatch(needs_no_shell, line) for line in lines):
        runs = commands(code)  # nor does TensorFlow start
    else:
        runs = [["bash", "-e", "-o", "pipefail", "-c", code]]
    of_few_steps = r"t2t-(keras-)?train|decoding\.Translator\(|t2t\.load\("
    given = ""
    for run in runs:
        if run[0] == "echo":
            given = run[1]
            continue
        if run[0] == "bash":
            done = subprocess.run(run, capture_output=True, text=True, **options)
        else:
            few = bool(re.search(of_few_steps, " ".join(run)))
            done = toy.forked(run, eagerly=few, input=given, **options)
        assert done.returncode == 0, f"{block.place}\n{run}\n{done.stdout}\n{done.stderr}"


def is_left_out(block):
    """Returns True if a block is no program, says that it is not run, or is long by design."""
    if block.language not in ("sh", "python") or block.not_run or block.file:
        return True
    words = commands(block.code) if block.language == "sh" else []
    return bool(words) and all(one[1:2] and "benchmarks/" in one[1] for one in words)


@pytest.mark.parametrize("name", [name for name in ALL if not all(map(is_left_out, blocks(name)))])
def test_blocks_run(name, run_page):
    run_page(name)


# Blocks that are not run


CHECK = """
import json, os, sys
from absl import flags
from t2t_keras import registry
from t2t_keras.cli import options
import importlib

def check(argv):
    module = importlib.import_module("t2t_keras.cli." + argv[0].removeprefix("t2t-keras-"))
    module.define_flags()
    FLAGS = flags.FLAGS
    FLAGS(argv)
    own = "t2t_usr_dir" in FLAGS and FLAGS.t2t_usr_dir
    if "problem" in FLAGS and FLAGS.problem and not own:
        names = FLAGS.problem if isinstance(FLAGS.problem, list) else [FLAGS.problem]
        for name in names:
            registry.problem(name)
    if "hparams_set" in FLAGS and not own:
        options.hparams(needed=False)
    if "decode_hparams" in FLAGS:
        from t2t_keras.decode_settings import DecodeSettings
        DecodeSettings.parse(FLAGS.decode_hparams)

for place, argv in json.load(sys.stdin):
    if not os.fork():
        try:
            check(argv)
        except Exception as error:
            print(place, " ".join(argv), error, sep=": ", flush=True)
        os._exit(0)
    os.wait()
"""


def test_commands_that_are_not_run_have_flags_that_exist():
    given = []
    for name in ALL:
        for block in blocks(name):
            if block.language == "sh" and is_left_out(block):
                for words in commands(block.code):
                    while re.match(r"\w+=", words[0]):  # of the environment
                        words = words[1:]
                    if words[0].startswith("t2t-keras-"):
                        given.append((block.place, words))
                    else:
                        check_other_command(words)
    done = toy.forked(["python", "-c", CHECK], input=json.dumps(given), cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def check_other_command(words):
    """Checks that other commands name files that the repository has."""
    program, *rest = words
    if program == "make":
        targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert set(rest) <= set(targets), words
    elif program == "pip":
        extras = {extra for word in rest for extra in re.findall(r"\[(\w+)\]", word)}
        offered = re.findall(r"^(\w+) =\n", (ROOT / "setup.cfg").read_text(), re.MULTILINE)
        assert extras <= set(offered), words
    elif program == "python" and rest[0][0] != "-":
        source = (ROOT / rest[0]).read_text()
        for flag in (word.split("=")[0] for word in rest if word.startswith("--")):
            assert f'"{flag}"' in source, words


# Pages


@pytest.mark.parametrize("name", ALL)
def test_every_block_names_its_language_and_shows_files_as_they_are(name):
    for block in blocks(name):
        assert block.language in LANGUAGES, f"{block.place}: ```{block.language}"
        assert not block.file or block.code in (ROOT / block.file).read_text(), block.place
    programs = "t2t-|python|pip|make|docker|curl|git"
    for lines in indented_lines(name):
        assert not re.match(rf"\s+({programs})\b", lines), f"{name}: fence as sh: {lines}"


@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_replaces_is_there(name):
    run = "".join(block.code for block in blocks(name) if not is_left_out(block))
    assert [old for old in PAGES[name].replace if old not in run] == []


# From tensor2tensor


@pytest.mark.skipif(
    not t2t_release.RELEASED.exists(), reason="needs T2T's released vocabulary in ../shared"
)
def test_the_model_that_t2t_released_translates_as_t2t_did(run_page):
    directory = run_page("docs/from-tensor2tensor.md")
    encoder = SubwordTextEncoder(directory / "t2t_data" / t2t_release.VOCABULARY)
    case = t2t_release.expected()
    sentences = [encoder.decode(row[:-1]) for row in map(t2t_release.ids, case["inputs"])]
    (directory / "released.en").write_text("\n".join(sentences) + "\n")
    flags = (
        "--problem=translate_ende_wmt8k --data_dir=t2t_data --checkpoint_path=german/model.ckpt-1 "
        "--decode_from_file=released.en --decode_to_file=released.de "
        "--decode_hparams=beam_size=4,alpha=0.6,extra_length=10,t2t_batches=true"
    )
    toy.ran("decode", *flags.split(), cwd=directory)
    theirs = [encoder.decode(row) for row in golden.up_to_eos(case["beam_outputs"])]
    assert (directory / "released.de").read_text().splitlines() == theirs


def test_what_is_said_of_flags_of_t2t_is_so():
    """Those on the left are T2T's, and those that stand in their place exist."""
    ours = {*re.findall(r"^\| `--(\w+)", (ROOT / "docs/flags.md").read_text(), re.MULTILINE)}
    theirs = {*t2t_names.names("flag")}
    page = (ROOT / "docs/from-tensor2tensor.md").read_text()
    section = page.split("\n### Flags\n")[1].split("\n### ")[0]
    for row in re.findall(r"^\| (`--.*) \|$", section, re.MULTILINE):
        left, right = (set(re.findall(r"--(\w+)", cell)) for cell in row.split(" | "))
        assert left <= ours | theirs and right <= ours, row
    trained_with = t2t_release.RELEASED / "transformer_test_ckpt/flags.txt"
    if trained_with.exists():
        given = set(re.findall(r"^--(\w+)=", trained_with.read_text(), re.MULTILINE))
        assert given <= ours | theirs


def test_hooks_of_problems_that_are_not_called_are_on_the_page():
    page = (ROOT / "docs/from-tensor2tensor.md").read_text()
    table = page.split("\n### Hooks of a problem\n")[1].split("\n| T2T")[1].split("\n###")[0]
    rows = [re.findall(r"`(\w+)`", row.split(" | ")[0]) for row in table.strip().splitlines()[2:]]
    hooks = t2t_names.names("hook")
    groups = itertools.groupby(hooks, lambda name: t2t_names.why_absent("hook", name))
    assert rows == [[*names] for _, names in groups]


def test_the_directory_of_the_page_runs_unedited(run_page):
    directory = run_page("docs/from-tensor2tensor.md")
    assert len((directory / "test.fr").read_text().splitlines()) == 40
    (evaluation,) = (directory / "weather_run/evaluations.jsonl").read_text().splitlines()
    assert {"accuracy", "approx_bleu_score", "bleu"} <= {*json.loads(evaluation)}


# Lists made of tables


@pytest.mark.parametrize("name", ["settings", "flags"])
def test_the_page_is_that_of_the_tables(name):
    """Otherwise: python docs/generate_settings.py, python docs/generate_flags.py"""
    code = f"from generate_{name} import page; print(page(), end='')"
    done = toy.python("-c", code, env={**os.environ, "PYTHONPATH": f"{ROOT / 'docs'}:{ROOT}"})
    assert done.stdout == (ROOT / f"docs/{name}.md").read_text(encoding="utf-8"), done.stderr


# The API


def test_every_public_name_has_a_docstring():
    for name in make_release.public_names():
        module, _, public = name.rpartition(".")
        value = getattr(importlib.import_module(module), public)
        if inspect.isclass(value) or inspect.isroutine(value):
            assert inspect.getdoc(value), name


# Links


@pytest.mark.parametrize("name", ["CHANGELOG.md", *ALL])
def test_links_lead_to_headings_that_there_are(name):
    page = ROOT / name
    for path, heading in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text(encoding="utf-8")):
        assert heading in headings(page.parent / path if path else page), f"{path}#{heading}"


def headings(page):
    """The names that GitHub gives the headings of a page."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
