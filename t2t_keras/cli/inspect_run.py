"""`t2t-keras-inspect run`: how runs went or are going, alone or side by side."""

from __future__ import annotations

import os
import time

from absl import flags

from t2t_keras.cli import options
from t2t_keras.errors import UserError

FLAGS = flags.FLAGS


def define_flags() -> None:
    """This subject has no flags of its own."""


def main(arguments: list[str]) -> None:
    """Prints what directories of runs tell, and writes the page if it is asked for.

    Args:
        arguments: the directories.
    """
    _check(arguments)
    path = options.file_to_write("html")
    options.load_user_directory()

    from t2t_keras.inspection.run_page import run_page
    from t2t_keras.inspection.run_text import run_text
    from t2t_keras.inspection.runs import read_run

    runs = [read_run(directory) for directory in arguments]
    now = time.time()
    print(*run_text(runs, now), sep="\n")
    if path:
        options.write_page("html", path, run_page(runs, now))
        print(f"\npage: {path}")


def _check(directories: list[str]) -> None:
    if not directories:
        raise UserError("no run is named: write t2t-keras-inspect run DIR, or several directories.")
    seen: dict[str, str] = {}
    for directory in directories:
        place = os.path.realpath(os.path.expanduser(directory))
        if place in seen:
            raise UserError(f"{directory} and {seen[place]} are the same run: name it once.")
        seen[place] = directory
