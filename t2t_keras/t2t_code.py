"""What a user's own code for tensor2tensor names, hooks of a problem and modules, and what to write instead."""

from __future__ import annotations

import ast
import importlib

HOOKS = {
    "set loss_multiplier and space_ids on the class": ("hparams", "get_hparams"),
    "change texts in generate_samples, ids in generate_encoded_samples": (
        "preprocess_example",
        "preprocess",
        "maybe_reverse_and_copy",
        "maybe_reverse_features",
        "maybe_copy_features",
    ),
    "every example is ids of inputs and of targets": (
        "example_reading_spec",
        "decode_example",
        "has_inputs",
        "feature_info",
    ),
    "define quality, which scores texts": (
        "eval_metrics",
        "eval_metric_fns",
        "all_metrics_fns",
        "eval_hooks",
        "decode_hooks",
    ),
    "batches are of batch_size tokens and max_length at most, both settings": (
        "batch_size_means_tokens",
        "max_length",
        "tpu_batch_size_per_shard",
    ),
    "any number of processes encode what generate_samples yields": (
        "multiprocess_generate",
        "num_generate_tasks",
        "prepare_to_generate",
    ),
    "dataset_filename and dataset_splits name the files": (
        "filepattern",
        "training_filepaths",
        "dev_filepaths",
        "test_filepaths",
        "data_filepaths",
    ),
    "t2t_keras.data.dataset makes the batches": (
        "dataset",
        "input_fn",
        "make_estimator_input_fn",
        "skip_random_fraction_when_training",
    ),
    "t2t-keras-export makes what is served": ("serving_input_fn", "export_assets"),
    "training is of one problem": ("num_training_examples", "task_id", "set_task_id"),
}
"""By what to do instead: what T2T's `Problem` has, and nothing here calls."""

COUNTERPARTS = {
    "": "it has no counterpart, see docs/from-tensor2tensor.md",
    "data_generators.generator_utils": "name archives and files in source_data_files of a "
    "TranslateProblem, or yield text in generate_samples",
    "data_generators.problem": "t2t_keras.data",
    "data_generators.text_encoder": "t2t_keras.text",
    "data_generators.text_encoder.EOS_ID": "t2t_keras.ids.EOS_ID",
    "data_generators.text_encoder.PAD_ID": "t2t_keras.ids.PAD_ID",
    "data_generators.text_problems": "t2t_keras.data",
    "data_generators.text_problems.text2text_txt_iterator": "name the files in source_data_files of a "
    "TranslateProblem",
    "data_generators.text_problems.txt_line_iterator": "t2t_keras.text.iterate_lines",
    "data_generators.translate": "t2t_keras.data",
    **{
        f"data_generators.translate_en{language}": f"t2t_keras.problems.{module}"
        for module, languages in {
            "wmt": ("cs", "de", "es", "et", "fr", "ro", "zh"),
            "small_corpora": ("id", "mk", "tn", "vi"),
        }.items()
        for language in languages
    },
    "layers.common_hparams": 'leave it out, and begin with registry.hparams("transformer_base_v1")',
    "layers.modalities": "leave it out, both sides are text",
    "models": "leave it out",
    "models.transformer": 'leave it out, and write registry.hparams("transformer_base") for '
    "transformer.transformer_base()",
    "utils.metrics": "leave it out, and define quality in the problem",
    "utils.registry": "t2t_keras.registry",
    "utils.t2t_model": "register a subclass of t2t_keras.Transformer, see docs/extending.md",
}
"""By what follows "tensor2tensor.": the module or the name to import, or what to do."""


def uncalled_hooks(problem: type) -> str:
    """The hooks of T2T's that a user's problem defines in vain, each with what to do; "" if none."""
    found = []
    for instead, names in HOOKS.items():
        theirs = [name for name in names if _is_of_a_user(problem, name)]
        found += [f"{', '.join(theirs)} ({instead})"] if theirs else []
    return ", ".join(found)


def _is_of_a_user(problem: type, name: str) -> bool:
    owners = (owner.__module__ for owner in problem.__mro__ if name in vars(owner))
    return not next(owners, "t2t_keras.").startswith("t2t_keras.")


def imports_instead(source: str) -> list[tuple[int, str, str]]:
    """The names of tensor2tensor's in Python code, each with its first line and what to do instead.

    They are what it imports, and what it reads from an imported module whose counterpart lacks it:
    `text_problems.Text2ClassProblem`.
    """
    nodes = sorted(ast.walk(ast.parse(source)), key=lambda node: getattr(node, "lineno", 0))
    imported: dict[str, str] = {}
    found: dict[str, tuple[int, str, str]] = {}
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            start = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                name = start + alias.name
                if name.split(".")[0] == "tensor2tensor":
                    bound = alias.asname or name.split(".")[-1]
                    imported[bound] = name
                    found.setdefault(name, (node.lineno, name, _instead(name, bound)))
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = imported.get(node.value.id)
            if module and not _goes_with(module, node.attr):
                name = f"{module}.{node.attr}"
                found.setdefault(name, (node.lineno, name, _instead(name, node.attr)))
    return list(found.values())


def _instead(name: str, bound: str) -> str:
    """What to write for a name of T2T's that the code calls `bound`."""
    place, rest = _counterpart(name)
    if not place.startswith("t2t_keras."):
        return place
    if rest and not hasattr(importlib.import_module(place), rest):
        return f"{COUNTERPARTS['']} ({place} has no {rest})"
    module, _, last = ".".join(filter(None, [place, rest])).rpartition(".")
    return f"from {module} import {last}" + f" as {bound}" * (last != bound)


def _goes_with(module: str, name: str) -> bool:
    """Whether what is said of a module of T2T's holds for a name that is read from it."""
    place, rest = _counterpart(module)
    if not place.startswith("t2t_keras.") or rest:
        return True
    return _instead(f"{module}.{name}", name) == f"from {place} import {name}"


def _counterpart(name: str) -> tuple[str, str]:
    """What stands for the longest known beginning of a name of T2T's, and the rest of the name."""
    known, rest = name.split(".")[1:], list[str]()
    while ".".join(known) not in COUNTERPARTS:
        rest.insert(0, known.pop())
    return COUNTERPARTS[".".join(known)], ".".join(rest)
