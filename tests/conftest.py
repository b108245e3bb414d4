"""Order and memory, for all tests."""

import gc

import pytest

# Graphs are many objects, seldom garbage: to look through all of them as often as Python does takes a
# quarter of the time.
gc.set_threshold(50_000, 50, 1_000)


# Whole files go to one worker: those that take a minute first, so that none is left alone at the end.
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
    *("text_graph", "optimizers", "on_the_fly", "cli_paper", "beam", "transformer_keras"),
)


def pytest_collection_modifyitems(items):
    places = {f"test_{name}.py": place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path.name, len(LONG)))


@pytest.fixture(scope="module", autouse=True)
def forget_graphs():
    """Frees the graphs that a file of tests has made.

    TensorFlow keeps every graph with a custom gradient for good, in its registry of gradients.
    """
    yield
    import tensorflow as tf

    registry = tf.RegisterGradient.__call__.__globals__["gradient_registry"]._registry
    for name in [name for name in registry if name.startswith("CustomGradient-")]:
        del registry[name]
    gc.collect()
