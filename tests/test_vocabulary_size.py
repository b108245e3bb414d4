"""Vocabularies beside tables of other sizes: T2T's tables may have more rows than there are tokens."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import t2t_release
import toy

from t2t_keras import checkpoints, registry
from t2t_keras.decoding import DecodeSettings, Translator
from t2t_keras.errors import UserError
from t2t_keras.export.served import ServedTransformer
from t2t_keras.text import ByteTextEncoder, SubwordTextEncoder, TokenTextEncoder
from t2t_keras.text.vocabulary_size import require_vocabulary, require_vocabulary_of_run
from t2t_keras.transformer import Transformer

TINY = "transformer_test,num_hidden_layers=1,hidden_size=8,filter_size=8"
ROWS = 48


def write_run_of_t2t(directory, hparams=TINY):
    """Writes a checkpoint of `ROWS` rows and the settings, as T2T leaves them: nothing says how many tokens."""
    hp = registry.hparams(hparams)
    model = Transformer(hp, source_vocab_size=ROWS, target_vocab_size=ROWS)
    checkpoints.save_t2t(model, str(directory / "model.ckpt-1"))
    (directory / "hparams.json").write_text(json.dumps(hp.to_dict()))
    return directory


def write_vocabulary(directory, count):
    lines = (f"'{subword}'\n" for subword in t2t_release.made_up_subwords(count))
    (directory / t2t_release.VOCABULARY).write_text("".join(lines))
    return directory


def decode(tmp_path, tokens, hparams=TINY):
    write_vocabulary(write_run_of_t2t(tmp_path, hparams), tokens)
    (tmp_path / "lines").write_text("Hello\n")
    return toy.command(
        "decode",
        f"--problem={t2t_release.PROBLEM}",
        f"--data_dir={tmp_path}",
        f"--checkpoint_path={tmp_path}",
        f"--decode_from_file={tmp_path / 'lines'}",
        f"--decode_to_file={tmp_path / 'out'}",
        "--decode_hparams=beam_size=2,extra_length=2",
    )


def test_a_table_of_more_rows_than_tokens_decodes_with_a_word(tmp_path):
    done = decode(tmp_path, ROWS - 8)
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "out").read_text().splitlines()) == 1
    [warning] = [line for line in done.stderr.splitlines() if "vocabulary" in line]
    assert warning == (
        f"warning: the vocabulary of the inputs in {tmp_path} has 40 tokens and the model's table 48 "
        "rows: make sure that the model was trained on it."
    )


def test_rows_that_vocab_divisor_added_need_no_word(tmp_path):
    done = decode(tmp_path, ROWS - 8, f"{TINY},vocab_divisor=16")
    assert done.returncode == 0, done.stderr
    assert "vocabulary" not in done.stderr


def test_more_tokens_than_rows_are_refused(tmp_path):
    assert toy.complaint(decode(tmp_path, ROWS + 1)) == (
        f"t2t-keras-decode: the vocabulary of the inputs in {tmp_path} has 49 tokens and the model 48: "
        "give the data the model was trained on."
    )


def test_a_run_of_ours_says_how_many_tokens_it_had(tmp_path):
    model = checkpoints.load_model(str(write_run_of_t2t(tmp_path)))
    sizes = {"inputs": ROWS, "targets": ROWS - 1}
    run = {"source_vocab_size": ROWS, "target_vocab_size": ROWS}
    assert "of the targets" in require_vocabulary_of_run(model, sizes, {}, "data")
    with pytest.raises(UserError, match=r"targets in data has 47 tokens and the model 48: give"):
        require_vocabulary_of_run(model, sizes, run, "data")
    assert require_vocabulary_of_run(model, {**sizes, "targets": ROWS}, run, "data") == ""


def test_an_export_refuses_more_tokens_than_rows_alone():
    model = SimpleNamespace(source_vocab_size=300, target_vocab_size=258)
    require_vocabulary(model, {"inputs": ByteTextEncoder(), "targets": ByteTextEncoder()})
    model.target_vocab_size = 257
    with pytest.raises(UserError, match="of the targets has 258 tokens and the model 257"):
        require_vocabulary(model, {"inputs": ByteTextEncoder(), "targets": ByteTextEncoder()})


@pytest.mark.parametrize(
    ("encoder", "ids", "text"),
    [
        # As T2T 1.15.7's encoders decode them.
        (TokenTextEncoder(vocab_list=["a", "b"]), [3, 7, 2, 1, 2], "b ID_7 a"),
        (SubwordTextEncoder.build_from_generator(["aa"], 10), [40, 2, 41], None),
        (ByteTextEncoder(), [67, 300, 68, 1], "AB"),  # T2T's fails
    ],
    ids=["tokens", "subwords", "bytes"],
)
def test_ids_beyond_the_vocabulary(encoder, ids, text, tmp_path):
    model = checkpoints.load_model(str(write_run_of_t2t(tmp_path)))
    model.source_vocab_size = model.target_vocab_size = (
        400  # `ServedTransformer` looks at these alone
    )
    encoders = {"inputs": encoder, "targets": encoder}
    if text is None:
        text = encoder.decode([2])
    assert Translator(model, encoders).text(ids) == text
    served = ServedTransformer(model, encoders, DecodeSettings(beam_size=1))
    rows = np.array([[ids]], np.int32)
    assert served._parts.texts(rows).numpy().tolist() == [[text.encode()]]
