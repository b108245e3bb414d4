"""`python -m t2t_keras.problems.numbers`: a split as text."""

import pytest

from t2t_keras.problems.numbers.__main__ import main
from t2t_keras.problems.numbers.pairs import pairs


def test_writes_the_sentences_of_a_split_line_by_line(tmp_path):
    english, german = tmp_path / "test.en", tmp_path / "test.de"
    main(["test", str(english), str(german)])
    written = zip(
        *(path.read_text("utf-8").splitlines() for path in (english, german)), strict=True
    )
    assert list(written) == list(pairs("test"))


@pytest.mark.parametrize("arguments", [[], ["test", "a"], ["eval", "a", "b"]])
def test_tells_its_usage(arguments):
    with pytest.raises(SystemExit, match=r"usage: .* train\|dev\|test ENGLISH_FILE GERMAN_FILE"):
        main(arguments)


def test_names_a_file_that_cannot_be_written(tmp_path):
    path = str(tmp_path / "absent" / "test.en")
    with pytest.raises(SystemExit, match=rf"^{path} cannot be written: No such file or directory"):
        main(["test", path, path])
