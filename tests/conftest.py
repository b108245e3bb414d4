"""Order and memory, for all tests."""

import contextlib
import ctypes
import gc

import networks
import pytest
import tensorflow as tf
import warm_server

warm_server.quick_graphs()

# Files that take long, about the longest first. They begin, since a worker takes whole files, lest one
# be left alone with them at the end; and `make check` leaves them out.
LONG = (
    *(
        "distribution",
        "cli_train",
        "trainer",
        "docs",
        "fit",
        "golden",
        "export",
        "engine",
        "examples",
    ),
    *("text_graph", "optimizers", "on_the_fly", "golden_runs", "layers_decoder", "beam", "jax"),
    *("transformer_keras", "cli_paper", "cli_export", "train_step", "reading"),
    *("search", "transformer", "layers_restricted_attention", "serving", "transformer_packed"),
    *("benchmarks", "packaging", "translate_files", "cli_decode", "parsing_problems", "query"),
    *("generation", "ctranslate2", "ensemble", "packing", "attention_page", "cli_eval"),
    *("inspection_search", "translate_wmt14", "cli_inspect", "cli_avg", "cli_datagen"),
)


def pytest_collection_modifyitems(items):
    places = {f"test_{name}.py": place for place, name in enumerate(LONG)}
    for item in items:
        if item.path.name in places:
            item.add_marker("long")
    items.sort(key=lambda item: places.get(item.path.name, len(LONG)))


def pytest_collection_finish():
    gc.collect()
    gc.freeze()  # what has been imported stays: no collection looks through it again


@pytest.fixture(scope="module", autouse=True)
def forget_graphs(request):
    """Frees the models and graphs that a file of tests has made; a file may ask for graphs sooner."""
    yield _forget_graphs
    for value in vars(request.module).values():
        if hasattr(value, "cache_clear") and value.__module__ == request.module.__name__:
            value.cache_clear()
    _forget_graphs()


def _forget_graphs():
    """TensorFlow keeps every graph with a custom gradient for good, in its registry of gradients."""
    networks.search_model.cache_clear()
    networks.padding_model.cache_clear()
    registry = tf.RegisterGradient.__call__.__globals__["gradient_registry"]._registry
    for name in [name for name in registry if name.startswith("CustomGradient-")]:
        del registry[name]
    gc.collect()
    with contextlib.suppress(AttributeError):  # what glibc keeps of many threads' arrays: half a GB
        ctypes.CDLL(None).malloc_trim(0)


@pytest.fixture
def eagerly():
    """Runs operations one by one: for a few steps of a model whose graph is not what is tested."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)
