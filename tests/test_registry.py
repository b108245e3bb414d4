"""Names of hparams sets and problems; the grammar of problem names is T2T's utils/registry.py."""

import sys

import pytest

from t2t_keras import registry
from t2t_keras.data import Problem
from t2t_keras.errors import UserError
from t2t_keras.settings import HParams


@pytest.fixture
def empty(monkeypatch):
    """A registry with two sets and two problems of its own."""
    for table in ("_sets", "_problems", "_aliases"):
        monkeypatch.setattr(registry, table, {})

    @registry.register_hparams
    def small():
        return HParams(hidden_size=8)

    @registry.register_hparams("other_name")
    def large():
        return small().replace(num_heads=2)

    class Pair:
        def __init__(self, was_reversed=False, was_copy=False):
            self.flags = (was_reversed, was_copy)

    registry.register_problem(type("TranslateEndeWmt32k", (Pair,), {}))
    registry.register_problem("by_hand")(type("Another", (Pair,), {}))
    registry.register_problem_alias("translate_ende", "translate_ende_wmt32k")
    registry.register_problem_alias("backwards", "by_hand_rev_copy")
    registry.register_problem_alias("back", "backwards")


def test_sets_by_name_and_with_overrides(empty):
    assert registry.list_hparams() == ["other_name", "small"]
    for name, values in (("small", {}), ("other_name", {"num_heads": 2})):
        assert registry.hparams(name) == HParams(hidden_size=8, **values)
        assert registry.hparams(name).set_name == name
    hp = registry.hparams("small,batch_size=99,relu_dropout_broadcast_dims=[0, -2]", "num_heads=4")
    assert (hp.batch_size, hp.relu_dropout_broadcast_dims, hp.num_heads) == (99, "0, -2", 4)
    assert registry.hparams("batch_size=7,small").batch_size == 7
    assert registry.hparams("small,batch_size=3,batch_size=4", "num_heads=2").batch_size == 4
    assert registry.hparams("small,batch_size=3,num_heads=4", "num_heads=2").num_heads == 2
    assert hp.set_name == "small"
    assert registry.hparams(registry.spec(hp)) == hp


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("smal", "unknown hparams set 'smal'. Did you mean 'small'?"),
        ("small,other_name", "got 2 (small, other_name)"),
        ("nothing", "must return an HParams, got NoneType"),
        ("batch_size=3", "got none"),
    ],
)
def test_wrong_set(empty, spec, message):
    registry.register_hparams("nothing")(lambda: None)
    with pytest.raises(UserError) as caught:
        registry.hparams(spec)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "full_name", "flags"),
    [
        ("translate_ende_wmt32k_copy", "translate_ende_wmt32k_copy", (False, True)),
        ("translate_ende_wmt32k_copy_rev", "translate_ende_wmt32k_copy_rev", (True, True)),
        ("translate_ende", "translate_ende_wmt32k", (False, False)),
        ("translate_ende_rev", "translate_ende_wmt32k_rev", (True, False)),
        ("backwards", "by_hand_rev_copy", (True, True)),
        ("back_rev", "by_hand_copy", (False, True)),
    ],
)
def test_problem_names(empty, name, full_name, flags):
    problem = registry.problem(name)
    assert problem.flags == flags
    assert problem.name == full_name.replace("_rev", "").replace("_copy", "")


def test_wrong_problem_names(empty):
    assert registry.list_problems() == ["by_hand", "translate_ende_wmt32k"]
    with pytest.raises(UserError, match="Did you mean 'translate_ende_wmt32k'"):
        registry.problem("translate_ende_wmt23k")
    with pytest.raises(UserError, match="suffix '_rev' twice"):
        registry.problem("by_hand_rev_rev")
    with pytest.raises(UserError, match=r"unknown problem '_rev'.*--t2t_usr_dir"):
        registry.problem("_rev")


@pytest.mark.parametrize(
    ("register", "message"),
    [
        (lambda: registry.register_hparams("small")(HParams), "hparams set 'small' is registered already"),
        (lambda: registry.register_problem("by_hand")(object), "problem 'by_hand' is registered already"),
        (lambda: registry.register_problem_alias("by_hand", "translate_ende_wmt32k"), "problem 'by_hand' is registered already"),
        (lambda: registry.register_problem("something_rev")(object), "must not end in"),
    ],
)  # fmt: skip
def test_names_are_taken_once(empty, register, message):
    with pytest.raises(UserError, match=message):
        register()


def package(directory, files):
    """Writes a Python package."""
    for file, text in files.items():
        (directory / file).parent.mkdir(parents=True, exist_ok=True)
        (directory / file).write_text(text)
    return directory


def test_user_directory(empty, tmp_path):
    sets = (
        "from t2t_keras import registry\nfrom .numbers_of_mine import SIZE\n"
        "@registry.register_hparams\ndef my_own_set():\n"
        "    return registry.hparams('small').replace(hidden_size=SIZE)\n"
    )
    files = {"__init__.py": "from . import sets", "numbers_of_mine.py": "SIZE = 24"}
    mine = package(tmp_path / "my_translations", {**files, "sets.py": sets})
    registry.import_user_directory(f"{mine}/")
    registry.import_user_directory(str(mine))  # a second time registers nothing twice
    assert registry.hparams("my_own_set").hidden_size == 24
    assert str(tmp_path) not in sys.path


@pytest.mark.parametrize(
    ("name", "files", "message"),
    [
        ("absent", {}, "no user directory"),
        ("bare", {"b.py": "@registry.register_problem", "c.py": ""}, "has no __init__.py, so"),
        ("json", {"__init__.py": ""}, "has the name of a module that is already imported"),
        ("breaks", {"__init__.py": "\nimport no_such"}, "/__init__.py:2: ModuleNotFoundError: No"),
        ("syntax", {"__init__.py": "def"}, "failed: SyntaxError"),
        ("leaves", {"__init__.py": "import sys; sys.exit(0)"}, "/__init__.py:1: SystemExit: 0"),
        ("raises", {"__init__.py": "class A(BaseException): pass\nraise A(1)"}, ":2: A: 1"),
    ],
)
def test_wrong_user_directory(empty, tmp_path, name, files, message, refused):
    package(tmp_path / name, files)
    with refused() as caught:
        registry.import_user_directory(str(tmp_path / name))
    assert message in str(caught.value)


def test_what_users_register_replaces_ours(capsys):
    """Aliases, too, and with T2T's brackets; their own names are still taken once."""
    names = ("translate_ende", "translate_ende_wmt32k", "text2text_tmpdir")
    for name in names:
        mine = registry.register_problem(name)(type("Mine", (Problem,), {}))
        assert type(registry.problem(name)) is mine

    @registry.register_hparams()
    def transformer_base():
        return HParams(hidden_size=16)

    assert registry.hparams("transformer_base") == transformer_base()
    said = [line.split(" of ")[0] for line in capsys.readouterr().err.splitlines()]
    replaced = [*(f"problem {name!r}" for name in names), "hparams set 'transformer_base'"]
    assert said == [f"warning: {each}" for each in replaced]
    with pytest.raises(UserError, match="'transformer_base' is registered already"):
        registry.register_hparams(transformer_base)


def test_a_directory_imports_tensor2tensor_whatever_its_name(tmp_path):
    """Names that are not here fail when they are used."""
    sets = (
        "from tensor2tensor.utils import metrics, registry\nfrom tensor2tensor.models.video import savp\n"
        "import tensorflow.contrib.slim as slim\nmetrics.METRICS_FNS['mine'] = len\n"
        "registry.register_hparams('for_t2t')(lambda: savp.sets())\n"
    )
    files = {"__init__.py": "from . import sets\n", "sets.py": sets}
    registry.import_user_directory(str(package(tmp_path / "has-hyphen", files)))
    with pytest.raises(UserError, match=r"^tensor2tensor\.models\.video\.savp\.sets is not here"):
        registry.hparams("for_t2t")
