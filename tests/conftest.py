"""Order and memory, for all tests."""

import gc
import os
import pickle
import sys

import networks
import pytest
import tensorflow as tf
import warm_server
from _pytest import runner

warm_server.quick_graphs()
os.fsync = lambda descriptor: None  # nothing here cuts the power
_PROCESS = pytest.StashKey["_FileProcess"]()

# Files that take long, about the longest first. They begin, since a worker takes whole files, lest one
# be left alone with them at the end; and `make check` leaves them out.
LONG = """
docs distribution examples export trainer fit language_models prepend backends cli_train golden
static_search parsing_problems cli_export on_the_fly train_step cli_decode golden_runs
optimizers reading benchmarks engine cli_eval text_graph transformer_keras search
translate_files attention_page text_sentencepiece fault_injection generation
cli_datagen serving ctranslate2 query layers_contract cli_avg beam packing
cli_inspect ensemble translate_wmt14 packaging
transformer_packed transformer
"""


def pytest_collection_modifyitems(items):
    places = {f"test_{name}.py": place for place, name in enumerate(LONG.split())}
    for item in items:
        if item.path.name in places:
            item.add_marker("long")
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


def pytest_collection_finish():
    threads = tf.config.threading.get_inter_op_parallelism_threads()
    try:
        tf.config.threading.set_inter_op_parallelism_threads(threads + 1)
    except RuntimeError:  # TensorFlow has begun, whose threads would be missing in a fork
        raise pytest.UsageError("A file makes a tensor when it is imported.") from None
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    gc.collect()
    gc.freeze()  # what has been imported stays: no collection looks through it again


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item):
    """Runs each file of tests in a fork of its worker, for XLA keeps all that it has compiled."""
    if not hasattr(item.config, "workerinput"):
        return None  # without workers tests run here, as a debugger wants them
    process = item.config.stash.get(_PROCESS, None)
    if not process or process.path != item.path:
        if process:
            os.waitpid(process.number, 0)
        process = item.config.stash[_PROCESS] = _FileProcess(item)
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in process.reports(item):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


class _FileProcess:
    """A fork that runs the tests of a file one after the other and hands on their reports."""

    def __init__(self, first):
        self.path = first.path
        if "toy" in sys.modules:
            sys.modules["toy"].programs()  # one server for all files
        reading, writing = os.pipe()
        self.number = os.fork()
        if not self.number:
            os.close(reading)
            self._run([item for item in first.session.items if item.path == self.path], writing)
        os.close(writing)
        self._reports = open(reading, "rb")

    def _run(self, items, writing):
        try:
            with open(writing, "wb", buffering=0) as file:
                for item, following in zip(items, [*items[1:], None], strict=True):
                    reports = runner.runtestprotocol(item, nextitem=following, log=False)
                    to_plain = item.config.hook.pytest_report_to_serializable
                    plain = [to_plain(config=item.config, report=report) for report in reports]
                    file.write(pickle.dumps(plain))
        finally:
            os._exit(0)  # also when the worker has gone, as with -x: a fork never runs its code

    def reports(self, item):
        """Returns the reports of the next test, once it has run."""
        try:
            plain = pickle.load(self._reports)
        except EOFError:
            message = f"the process that runs {self.path.name} has ended"
            place = item.nodeid, item.location, {}
            return [pytest.TestReport(*place, outcome="failed", longrepr=message, when="call")]
        from_plain = item.config.hook.pytest_report_from_serializable
        return [from_plain(config=item.config, data=data) for data in plain]


@pytest.fixture(scope="module")
def forget_graphs():
    """TensorFlow keeps every graph with a custom gradient for good, in its registry of gradients."""

    def forget():
        networks.search_model.cache_clear()
        networks.padding_model.cache_clear()
        registry = tf.RegisterGradient.__call__.__globals__["gradient_registry"]._registry
        for name in [name for name in registry if name.startswith("CustomGradient-")]:
            del registry[name]
        gc.collect()

    return forget


@pytest.fixture
def eagerly():
    """Runs operations one by one: for a few steps of a model whose graph is not what is tested."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)
