"""Event files, read without TensorFlow; written by TensorFlow's own protocol buffers."""

import numpy as np
import pytest
from run_files import events_file, write_events

from t2t_keras import registry
from t2t_keras.inspection.events import Point, read_events
from t2t_keras.training.reporting import EventLog


def test_reads_what_a_training_logs(tmp_path):
    log = EventLog(str(tmp_path))
    log.write_images(0, {"picture": np.zeros([2, 3, 3], np.uint8)})
    log.write_run(0, registry.hparams("transformer_tiny"), {"problem": "p"})
    for step in (100, 200):
        log.write(step, {"loss": 300 / step, "learning_rate": 1e-4})
    log.flush()
    curves = read_events(tmp_path)
    assert curves == {
        "loss": [(100, 3.0), (200, 1.5)],
        "learning_rate": [(100, np.float32(1e-4)), (200, np.float32(1e-4))],
    }


def test_reads_both_kinds_of_scalars_and_nothing_else(tmp_path):
    points = [(300, 12.5, {"metrics-x/accuracy": 0.25, "loss": -2.5, "words": "no scalar"})]
    write_events(events_file(tmp_path, 1), points)
    assert read_events(tmp_path) == {
        "metrics-x/accuracy": [Point(300, 0.25)],
        "loss": [Point(300, -2.5)],
    }


def test_a_start_that_went_back_replaces_what_came_later(tmp_path):
    """The second start went on from step 2; its file has a smaller name than the first one's."""
    write_events(events_file(tmp_path, 9), [(s, s, {"loss": s}) for s in (1, 2, 3, 4)])
    write_events(events_file(tmp_path, 10), [(s, 10 + s, {"loss": 10 * s}) for s in (3,)])
    assert read_events(tmp_path)["loss"] == [(1, 1), (2, 2), (3, 30)]


def test_a_file_that_is_cut_off_anywhere_is_read_as_far_as_it_goes(tmp_path):
    path = events_file(tmp_path, 1)
    write_events(path, [(s, s, {"loss": s}) for s in (1, 2, 3)])
    whole = path.read_bytes()
    numbers = set()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        steps = [point.step for point in read_events(tmp_path).get("loss", [])]
        assert steps == [1, 2, 3][: len(steps)]
        numbers.add(len(steps))
    assert numbers == {0, 1, 2}


@pytest.mark.parametrize("seed", range(4))
def test_damage_is_no_error(tmp_path, seed):
    path = events_file(tmp_path, 1)
    write_events(path, [(s, s, {"loss": s}) for s in range(5)])
    whole = bytearray(path.read_bytes())
    random = np.random.default_rng(seed)
    for place in random.permutation(len(whole))[:150]:
        damaged = whole.copy()
        damaged[place] ^= 1 << random.integers(8)
        path.write_bytes(damaged)
        assert sum(map(len, read_events(tmp_path).values())) <= 5


def test_a_directory_without_event_files_has_no_curves(tmp_path):
    assert read_events(tmp_path) == {}
    assert read_events(tmp_path / "absent") == {}
