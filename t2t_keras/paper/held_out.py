"""Writes the source sentences and references of a held-out split to text files.

Runs as a separate process, because reading some datasets needs TensorFlow:
`python -m t2t_keras.paper.held_out PROBLEM SPLIT DATA_DIR TMP_DIR INPUTS REFERENCES [USR_DIR]`.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from t2t_keras import registry
from t2t_keras.errors import UserError
from t2t_keras.files import atomic_write


def write_held_out(
    problem_name: str, split: str, data_dir: str, tmp_dir: str, inputs: Path, references: Path
) -> int:
    """Writes one sentence per line and returns their number; `inputs` gets its final name last.

    References have the output format of `t2t-keras-decode`: text, or trees.
    """
    problem = registry.problem(problem_name)
    if not problem.is_generate_per_split:
        raise UserError(
            f"{problem_name} has no separate {split} text: it divides one set of samples into splits."
        )
    count = 0
    with (
        atomic_write(inputs) as partial_inputs,
        atomic_write(references) as partial_references,
        partial_inputs.open("w", encoding="utf-8") as input_file,
        partial_references.open("w", encoding="utf-8") as reference_file,
    ):
        for sample in problem.generate_samples(data_dir, tmp_dir, split):
            pair = problem.orient(sample)
            source, target = (" ".join(pair[side].split()) for side in ("inputs", "targets"))
            print(source, file=input_file)
            print(problem.format_output(source, target), file=reference_file)
            count += 1
        if not count:
            raise UserError(f"the {split} data of {problem_name} contains no sentences.")
    return count


def main(arguments: list[str]) -> None:
    problem, split, data_dir, tmp_dir, inputs, references, *directories = arguments
    try:
        for directory in directories:
            registry.import_user_directory(directory)
        count = write_held_out(problem, split, data_dir, tmp_dir, Path(inputs), Path(references))
    except UserError as error:
        print(f"{split} of {problem}: {error}", file=sys.stderr)
        sys.exit(2)
    print(f"{count:,} sentences of {split} in {inputs}")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(sys.argv[1:])
