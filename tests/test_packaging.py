"""Contents of the wheel, the sdist and `setup.cfg`."""

import configparser
import re
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import toy
from packaging.requirements import Requirement

import t2t_keras
from t2t_keras.errors import UserError
from t2t_keras.text.graph import import_tensorflow_text

ROOT = Path(__file__).parents[1]
NOT_COPIED = shutil.ignore_patterns(
    ".*", "*.egg-info", "__pycache__", "build", "dist", "demo", "bench"
)


def installed_modules():
    """Paths in site-packages of all modules of the repository."""
    for folder in ("t2t_keras", "hparams", "problems"):
        for path in (ROOT / folder).rglob("*.py"):
            inside = path.relative_to(ROOT)
            yield inside if folder == "t2t_keras" else "t2t_keras" / inside


def installed_data():
    """Paths in site-packages of what is no module."""
    pages = (path.name for path in (ROOT / "t2t_keras/inspection/page").iterdir())
    names = ["py.typed", "t2t_names.tsv", "data/known_files.tsv", "text/word_characters.txt"]
    return {f"t2t_keras/{name}" for name in [*names, *(f"inspection/page/{p}" for p in pages)]}


def run(code, *arguments, cwd):
    return toy.succeeded(toy.python("-c", code, *arguments, cwd=cwd)).stdout


def build(source, kind, directory):
    """Builds a "wheel" or "sdist" of a source tree with setuptools alone, and returns its path."""
    code = "import sys; from setuptools import build_meta as b; print(getattr(b, sys.argv[1])(sys.argv[2]))"
    directory.mkdir()
    return directory / run(code, f"build_{kind}", directory, cwd=source).splitlines()[-1]


@pytest.fixture(scope="module")
def wheel_and_sdist(tmp_path_factory):
    directory = tmp_path_factory.mktemp("dist")
    source = shutil.copytree(ROOT, directory / "source", ignore=NOT_COPIED)
    return build(source, "wheel", directory / "w"), build(source, "sdist", directory / "s")


def names_in(wheel):
    return set(zipfile.ZipFile(wheel).namelist())


def test_pypi_would_show_the_readme(wheel_and_sdist):
    pytest.importorskip("twine")
    toy.succeeded(toy.python("-m", "twine", "check", "--strict", *wheel_and_sdist))


def test_every_package_is_listed():
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    listed = parser["options"]["packages"].split()
    packages = {path.parent.as_posix().replace("/", ".") for path in installed_modules()}
    assert listed == sorted(packages)


def test_tensorflow_text_can_be_imported():
    """2.21.0 cannot (tensorflow/text #1541), and there is none for Windows."""
    parser = configparser.ConfigParser(inline_comment_prefixes="#")
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    needed = map(Requirement, parser["options"]["install_requires"].split("\n")[1:])
    (found,) = (each for each in needed if each.name == "tensorflow-text")
    assert [found.specifier.contains(f"2.21.{patch}") for patch in "01"] == [False, True]
    assert not found.marker.evaluate({"platform_system": "Windows"})
    assert found.marker.evaluate({"platform_system": "Darwin"})


def test_what_needs_tensorflow_text_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_text", None)
    with pytest.raises(UserError, match=r"^SentencePiece in a graph needs tensorflow-text"):
        import_tensorflow_text()


def test_wheel_holds_the_package_and_nothing_else(wheel_and_sdist):
    wheel, _ = wheel_and_sdist
    names = names_in(wheel)
    metadata = f"t2t_keras-{t2t_keras.__version__}.dist-info/"
    code = {name for name in names if not name.startswith(metadata)}
    assert code == {path.as_posix() for path in installed_modules()} | installed_data()
    assert any(name.startswith(metadata) and name.endswith("/LICENSE") for name in names)


def test_wheel_declares_a_script_for_every_command(wheel_and_sdist):
    wheel, _ = wheel_and_sdist
    (path,) = (name for name in names_in(wheel) if name.endswith("/entry_points.txt"))
    text = zipfile.ZipFile(wheel).read(path).decode()
    scripts = dict(re.findall(r"^([\w-]+) = ([\w.:]+)$", text, re.MULTILINE))
    theirs = {name: scripts.pop(name) for name in [*scripts] if not name.startswith("t2t-keras-")}
    none = {"__init__", "app", "options", "t2t"}
    commands = {path.stem for path in (ROOT / "t2t_keras/cli").glob("*.py")} - none
    assert scripts == {f"t2t-keras-{name}": f"t2t_keras.cli.{name}:run" for name in commands}
    names = ["avg-all", "bleu", "datagen", "decoder", "exporter", "query-server", "trainer"]
    place = "t2t_keras.cli.t2t:t2t_"
    assert theirs == {
        f"t2t-{name}": place + name.replace("-", "_") for name in [*names, "translate-all"]
    }


def test_wheel_of_the_sdist_is_the_same(wheel_and_sdist, tmp_path):
    wheel, sdist = wheel_and_sdist
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path)
    (source,) = tmp_path.iterdir()
    for name in ("README.md", "CHANGELOG.md", "docs/architecture.md", "tests/test_packaging.py"):
        assert (source / name).exists()
    assert names_in(build(source, "wheel", tmp_path / "wheel")) == names_in(wheel)


def test_wheel_imports_away_from_the_repository(wheel_and_sdist, tmp_path):
    wheel, _ = wheel_and_sdist
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    code = (
        "import t2t_keras as t2t; import t2t_keras.problems.numbers;"
        "print(t2t.__file__, t2t.problems.__file__, t2t.registry.hparams('transformer_big').num_heads)"
    )
    site = f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r}); "
    top, problems, heads = run(site + code, cwd=tmp_path).split()
    assert Path(top) == tmp_path / "site/t2t_keras/__init__.py"
    assert Path(problems) == tmp_path / "site/t2t_keras/problems/__init__.py"
    assert heads == "16"
