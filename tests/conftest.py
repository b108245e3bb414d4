"""Order, and speed, for all tests."""

import contextlib
import gc
import os
import signal

if "PYTEST_XDIST_WORKER" in os.environ:  # each worker has a core: threads of all would wait
    for library in ("OMP_NUM", "TF_NUM_INTRAOP", "TF_NUM_INTEROP"):
        os.environ.setdefault(f"{library}_THREADS", "1")

os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # older processors have it only if asked
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each process would compile what it imports

import pytest
import replicas
import toy

from t2t_keras import registry
from t2t_keras.errors import UserError

# A background job of a shell ignores this signal, and so would the commands that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
os.fsync = lambda descriptor: None  # nothing here cuts the power

# Files that take long, about the longest first. They begin, since a worker takes whole files, lest one
# be left alone with them at the end; and `make check` leaves them out.
LONG = """
distribution properties docs search examples backends cli_train export golden benchmarks trainer
t2t_commands language_models engine fit t2t_directories parsing_problems cli_run on_the_fly train_step
cli_decode golden_runs optimizers reading text_graph transformer_keras translate_files attention_page
text_sentencepiece fault_injection generation cli_datagen mutations ctranslate2 query layers_contract
beam records cli_inspect tfds packaging prepend transformer
"""


def pytest_collection_modifyitems(items):
    toy.quick_graphs()  # not in the process that hands the tests out: it starts without TensorFlow
    places = {f"test_{name}.py": place for place, name in enumerate(LONG.split())}
    for item in items:
        if item.path.name in places:
            item.add_marker("long")
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


@pytest.fixture
def eagerly():
    """Runs operations one by one: for a few steps of a model whose graph is not what is tested."""
    with replicas.eagerly():
        yield


@pytest.fixture
def refused():
    """`with refused(message):` expects a `UserError` of one line with a match of the message."""

    @contextlib.contextmanager
    def expecting(message="."):
        with pytest.raises(UserError, match=message) as caught:
            yield caught
        assert "\n" not in str(caught.value)

    return expecting


@pytest.fixture(scope="module")
def toy_dir(tmp_path_factory):
    return toy.generate(tmp_path_factory.mktemp("toy")).parent  # of `text` and `data`


@pytest.fixture(scope="module")
def data_dir(toy_dir):
    return toy_dir / "data"


@pytest.fixture(scope="module")
def one_engine():
    with toy.one_engine():
        yield


@pytest.fixture(autouse=True, scope="module")
def registered():
    """Takes back what the tests of a file register."""
    registry.list_problems(), registry.list_hparams()  # the built-in ones stay
    tables = (registry._problems, registry._sets, registry._aliases, registry._models)
    before = [dict(table) for table in tables]
    yield
    for table, names in zip(tables, before, strict=True):
        table.clear()
        table.update(names)
    gc.collect(2)
    gc.freeze()
