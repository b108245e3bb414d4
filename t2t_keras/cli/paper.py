"""`t2t-keras-paper`: lists, shows, estimates the cost of, and runs the rows of the paper's tables.

Actions and examples:
    list: all rows, with the paper's results.
        t2t-keras-paper list
    show: data, settings, training, averaging and decoding of rows.
        t2t-keras-paper show paper_base
    cost: an estimate of parameters, operations, memory and hours on several devices.
        t2t-keras-paper cost paper_base paper_big
    run: generates data, trains, averages, translates and scores; rerun the same command to resume.
        t2t-keras-paper run paper_base --data_dir=data --output_dir=runs/base
    results: a table of the paper's results beside those of your experiments.
        t2t-keras-paper results runs

The help on a flag begins with its actions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from absl import flags

from t2t_keras import paper, registry
from t2t_keras.cli import app, options
from t2t_keras.errors import UserError, nearest
from t2t_keras.files import read_json
from t2t_keras.paper.experiment import RECORD_FILE, RESULT_FILE, Experiment, ExperimentSettings

FLAGS = flags.FLAGS


def define_flags() -> None:
    flags.DEFINE_string("data_dir", None, "run: directory of vocabulary and shards.")
    flags.DEFINE_string("output_dir", None, "run: directory of the experiment, new or to resume.")
    options.define_tmp_dir("run: ")
    flags.DEFINE_string("problem", None, "run: use this problem instead of the row's.")
    flags.DEFINE_integer(
        "train_steps", None, "run, cost: number of updates instead of the row's.", lower_bound=1
    )
    flags.DEFINE_string(
        "hparams", "", "run, cost: overrides of the row's settings, such as batch_size=2048."
    )
    flags.DEFINE_string("train_flags", "", "run: more flags for t2t-keras-train, in quotes.")
    flags.DEFINE_float(
        "utilization",
        0.3,
        "cost: share of a device's peak FLOP/s that training reaches.",
        lower_bound=0,
        upper_bound=1,
    )
    options.define_usr_dir()


def main(arguments: list[str]) -> None:
    """Runs the action that the first argument names."""
    action, *names = arguments or [""]
    if action not in _ACTIONS:
        raise UserError(
            f"unknown action {action!r}.{nearest(action, _ACTIONS)} Use one of "
            f"{', '.join(_ACTIONS)}, such as t2t-keras-paper show paper_base."
        )
    for name in dict.fromkeys(name for used in _FLAGS.values() for name in used):
        actions = [other for other, used in _FLAGS.items() if name in used]
        if action not in actions:
            options.warn_unused(f"it is for t2t-keras-paper {' and '.join(actions)}", name)
    _ACTIONS[action](names)


def list_rows(names: Sequence[str]) -> None:
    """Lists the rows with the paper's results."""
    options.reject_arguments(list(names))
    width = max(map(len, paper.ROWS))
    for row in paper.ROWS.values():
        figures = ", ".join(f"{name} {value:g}" for name, value in row.paper.items())
        print(f"{row.name:{width}}  {row.place:24}  {figures}")


def show(names: Sequence[str]) -> None:
    from t2t_keras.paper.cost import power

    for row in _rows("show", names):
        base, hp = registry.hparams("transformer_base_v1"), registry.hparams(row.name)
        differences = [
            f"{name}={value}" for name, (value, _) in hp.diff(base).items() if name in hp
        ]
        figures = [f"{name} {value:g}" for name, value in row.paper.items()]
        figures += [f"{row.paper_parameters:g} million parameters"] * bool(row.paper_parameters)
        figures += [f"{power(row.paper_flops)} operations"] * bool(row.paper_flops)
        judged = f"average of the last {row.averaged} checkpoints, {row.apart:,} updates apart"
        print(f"{row.name} ({row.place}): {', '.join(figures)}")
        print(
            f"  data      {row.problem}, about {row.vocab_size:,} tokens, evaluated on {row.split}"
        )
        print(f"  settings  transformer_base_v1 with {', '.join(differences)}")
        print(
            f"  training  {row.updates:,} updates of about {hp.tokens_per_update:,} target tokens"
        )
        print(f"  evaluated {judged if row.averaged > 1 else 'the last checkpoint'}")
        print(f"  decoding  {row.decode_hparams}")


def show_cost(names: Sequence[str]) -> None:
    from t2t_keras.paper.cost import describe

    for number, row in enumerate(_rows("cost", names)):
        price = paper.cost(row, FLAGS.hparams, FLAGS.train_steps)
        print(*[""] * bool(number), *describe(row, price, FLAGS.utilization), sep="\n")


def run_row(names: Sequence[str]) -> None:
    rows = _rows("run", names)
    if len(rows) > 1:
        raise UserError(f"run takes one row at a time, got {len(rows)}: {', '.join(names)}.")
    output_dir = options.required("output_dir")
    settings = ExperimentSettings(
        data_dir=options.required("data_dir"),
        output_dir=output_dir,
        tmp_dir=options.tmp_dir(),
        problem=FLAGS.problem or "",
        train_steps=FLAGS.train_steps or 0,
        hparams=FLAGS.hparams,
        train_flags=FLAGS.train_flags,
        t2t_usr_dir=options.directory("t2t_usr_dir") or "",
    )
    Experiment(rows[0], settings).run()
    print(*table([output_dir]), sep="\n")


def show_results(names: Sequence[str]) -> None:
    """Prints a table of the paper's results beside those of experiments."""
    if not names:
        raise UserError("results needs a directory: t2t-keras-paper results DIRECTORY.")
    print(*table(names), sep="\n")


_RECORD = {"row": str, "problem": str, "hparams": str, "train_steps": int}
_RESULT = {"split": str, "figures": {str: float}}


def table(directories: Iterable[str]) -> list[str]:
    """Returns a Markdown table of the experiments in `directories` and up to two levels below them."""
    head = ["row", "figure", "paper", "ours", "difference", "how"]
    lines = [head, ["---"] * len(head)]
    known = list(paper.ROWS)
    for directory in directories:
        top = Path(directory).expanduser()
        paths = [path for below in ("", "*/", "*/*/") for path in top.glob(below + RECORD_FILE)]
        if not paths:
            raise UserError(
                f"{directory} holds no experiment: name the --output_dir of t2t-keras-paper run, "
                "or the directory above several."
            )
        found = [(path.parent, read_json(path, _RECORD)) for path in paths]
        found.sort(key=lambda each: ([*known, each[1]["row"]].index(each[1]["row"]), str(each[0])))
        for experiment in found:
            lines += _figures(*experiment)
    return [f"| {' | '.join(cells)} |" for cells in lines]


def _figures(directory: Path, record: dict[str, Any]) -> Iterator[list[str]]:
    """Yields a table row for each result of the paper or of ours; ours are empty until the run is done."""
    row = paper.ROWS.get(record["row"])
    figures, paper_figures = {}, row.paper if row else {}
    if (directory / RESULT_FILE).exists():
        result = read_json(directory / RESULT_FILE, _RESULT)
        figures, state = result["figures"], result["split"]
    else:
        names = [path.stem for path in (directory / "run").glob("model.ckpt-*.index")]
        steps = [name.removeprefix("model.ckpt-") for name in names]
        newest = max((int(step) for step in steps if step.isdigit()), default=0)
        state = f"step {newest:,} so far"
    updates = f"{record['train_steps']:,}"
    if row and record["train_steps"] != row.updates:
        updates += f" of {row.updates:,}"
    how = [record["problem"], state, f"{updates} updates", record["hparams"]]
    for name in paper_figures | figures:
        ours, theirs = figures.get(name), paper_figures.get(name)
        yield [
            record["row"],
            name,
            "" if theirs is None else f"{theirs:g}",
            "" if ours is None else f"{ours:.2f}",
            "" if ours is None or theirs is None else f"{ours - theirs:+.2f}",
            ", ".join(filter(None, how)),
        ]


_FLAGS: dict[str, tuple[str, ...]] = {
    "list": (),
    "show": (),
    "cost": ("hparams", "train_steps", "utilization"),
    "run": (
        *("data_dir", "output_dir", "tmp_dir", "problem", "train_flags", "t2t_usr_dir"),
        *("hparams", "train_steps"),
    ),
    "results": (),
}
"""The flags of each action."""

_ACTIONS = {
    "list": list_rows,
    "show": show,
    "run": run_row,
    "cost": show_cost,
    "results": show_results,
}


def _rows(action: str, names: Sequence[str]) -> list[paper.Row]:
    if not names:
        raise UserError(
            f"{action} needs the name of a row: t2t-keras-paper {action} paper_base, "
            "or another one from t2t-keras-paper list."
        )
    return [paper.row(name) for name in names]


def run() -> None:
    define_flags()
    app.start(main)


if __name__ == "__main__":
    run()
