"""Directories and scripts that were written for tensor2tensor run as they are, under T2T's commands.

`expected.json` has digests of what T2T's own code made of these directories: of each vocabulary, and of
the examples in the shards of each split.
"""

import hashlib
import json
import random
import shlex
import string
import tarfile
from pathlib import Path

import pytest
import toy

from t2t_keras import registry
from t2t_keras.errors import UserError

DIRECTORIES = Path(__file__).parent / "data" / "t2t_directories"
EXPECTED = json.loads((DIRECTORIES / "expected.json").read_text())
LINES = 3


def write_corpus(directory):
    """Writes rows of letters and their reversals, an archive of them, and a list of the letters."""
    generator, corpus = random.Random(5), directory / "corpus"
    corpus.mkdir(parents=True)
    for split, count in (("train", 120), ("dev", 12)):
        lengths = (generator.randint(2, 9) for _ in range(count))
        rows = [" ".join(generator.choice("abcdefgh") for _ in range(n)) for n in lengths]
        (corpus / f"{split}.x").write_text("".join(f"{row}\n" for row in rows))
        (corpus / f"{split}.y").write_text("".join(f"{row[::-1]}\n" for row in rows))
    (directory / "lines.txt").write_text("".join(f"{row}\n" for row in rows[:LINES]))
    (directory / "words.txt").write_text("\n".join(["UNK", *"abcdefgh"]) + "\n")
    with tarfile.open(directory / "pairs.tgz", "w:gz") as archive:
        archive.add(corpus, "corpus")


def command_lines(script, variables):
    """Yields the words of each command of a shell script, with its variables replaced."""
    for line in script.read_text().replace("\\\n", " ").splitlines():
        words = shlex.split(string.Template(line).safe_substitute(variables), comments=True)
        if words and words[0].startswith("t2t-"):
            yield words
        elif words:
            name, _, value = words[0].partition("=")
            variables[name] = value


def digests(data_dir):
    """Returns the digest of each vocabulary and of each split: the examples of its shards, sorted."""
    import tensorflow as tf

    found = {}
    for path in sorted(data_dir.iterdir()):
        name = path.name.partition("-0")[0]
        if "-of-" in path.name:
            records = [record.numpy() for record in tf.data.TFRecordDataset(str(path))]
            features = (tf.train.Example.FromString(record).features.feature for record in records)
            examples = sorted(
                sorted((field, list(ids.int64_list.value)) for field, ids in each.items())
                for each in features
            )
            found.setdefault(name, hashlib.sha256()).update(repr(examples).encode())
        elif "vocab" in path.name:
            found[name] = hashlib.sha256(path.read_bytes())
    return {name: digest.hexdigest()[:16] for name, digest in found.items()}


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_directory_runs_from_datagen_to_decoded_lines(name, tmp_path):
    write_corpus(tmp_path / "tmp")
    variables = {"USR_DIR": f"{DIRECTORIES / name}/", "TMP_DIR": str(tmp_path / "tmp")}
    variables |= {"DATA_DIR": str(tmp_path / "data"), "TRAIN_DIR": str(tmp_path / "run")}
    said = ""
    for words in command_lines(DIRECTORIES / name / "run.sh", variables):
        said += toy.succeeded(toy.forked(words, eagerly=True)).stderr
    assert len((tmp_path / "run" / "decoded.txt").read_text().splitlines()) == LINES
    assert digests(tmp_path / "data") == EXPECTED[name]
    expected = {
        "own_hparams": "edit_distance",
        "own_encoder": "preprocess_example",
        "two-vocabularies": "--train_dir",
    }
    assert expected.get(name, "") in said


def test_what_a_problem_and_sets_say(tmp_path):
    """The settings as T2T resolves them, and the rows and factors that hooks choose."""
    for name in ("own_hparams", "own_sets"):
        registry.import_user_directory(str(DIRECTORIES / name))
    hp = registry.hparams("mine_from_the_start")
    changed = {"num_hidden_layers": 1, "hidden_size": 16, "max_length": 64, "batch_size": 512}
    changed |= {"learning_rate_decay_scheme": "noam", "learning_rate_warmup_steps": 10}
    changed |= {"filter_size": 32, "num_heads": 2, "label_smoothing": 0.0, "my_own_number": 7}
    changed |= {"optimizer_adam_beta1": 0.85, "optimizer_adam_beta2": 0.997, "clip_grad_norm": 2.0}
    changed |= {"initializer": "orthogonal", "initializer_gain": 1.5, "weight_decay": 1e-6}
    assert {key: getattr(hp, key) for key in changed} == changed
    assert not hp.shared_embedding_and_softmax_weights and hp.symbol_modality_num_shards == 1
    assert registry.hparams("mine_for_tpu") == registry.hparams("transformer_small_tpu")
    for made, reason in (
        (lambda: registry.hparams("mine_of_lstm"), r"tensor2tensor\.models\.lstm\.lstm_attention .*network other"),
        (lambda: registry.model("my_layers"), "must subclass t2t_keras.Transformer"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=reason):
            made()
    problem = registry.problem("spaces_rev")
    write_corpus(tmp_path / "tmp")
    problem.generate_data(tmp_path, tmp_path / "tmp")
    found = problem.get_hparams(None, tmp_path)
    size = found.vocabulary["inputs"].vocab_size
    assert found.vocab_size == {"inputs": size, "targets": size + 3}
    assert (found.input_space_id, found.target_space_id, found.loss_multiplier) == (8, 3, 1.5)
