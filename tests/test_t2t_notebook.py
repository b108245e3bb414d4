"""T2T's notebook runs after `install()`: its cells as they are, beside what this library itself answers."""

import toy

CELLS = """
import tensorflow as tf
import numpy as np
from tensorflow.contrib.eager.python import tfe as older_tfe
from tensor2tensor import models
from tensor2tensor import problems
from tensor2tensor.data_generators import problem
from tensor2tensor.layers import common_layers
from tensor2tensor.utils import trainer_lib
from tensor2tensor.utils import t2t_model
from tensor2tensor.utils import registry
from tensor2tensor.utils import metrics

tfe = tf.contrib.eager
tfe.enable_eager_execution()
Modes = tf.estimator.ModeKeys
tf.gfile.MakeDirs(data_dir)
####
ende_problem = problems.problem("text2text_tmpdir")
encoders = ende_problem.feature_encoders(data_dir)

def encode(input_str, output_str=None):
  inputs = encoders["inputs"].encode(input_str) + [1]  # add EOS id
  batch_inputs = tf.reshape(inputs, [1, -1, 1])  # Make it 3D.
  return {"inputs": batch_inputs}

def decode(integers):
  integers = list(np.squeeze(integers))
  if 1 in integers:
    integers = integers[:integers.index(1)]
  return encoders["inputs"].decode(np.squeeze(integers))
####
assert "transformer" in registry.list_models()
model_name = "transformer"
hparams_set = "transformer_test"
hparams = trainer_lib.create_hparams(hparams_set, data_dir=data_dir, problem_name="text2text_tmpdir")
translate_model = registry.model(model_name)(hparams, Modes.EVAL)
ckpt_path = tf.train.latest_checkpoint(checkpoint_dir)
####
def translate(inputs, **kwargs):
  encoded_inputs = encode(inputs)
  with older_tfe.restore_variables_on_create(ckpt_path):
    model_output = translate_model.infer(encoded_inputs, **kwargs)["outputs"]
  if len(model_output.shape) == 2:
    return decode(model_output)
  return [decode(x) for x in model_output[0]]

outputs = translate("a b c")
beams = translate("a b c", beam_size=3, alpha=0.6, top_beams=2)
####
class MySimpleModel(t2t_model.T2TModel):
  def body(self, features):
    return tf.layers.conv2d(features["inputs"], self.hparams.hidden_size, kernel_size=(5, 5))

example = dict(encode("a b c"), targets=tf.reshape(encoders["targets"].encode("c b a") + [1], [1, -1, 1, 1]))
with tfe.restore_variables_on_create(ckpt_path):
  translate_model.set_mode(Modes.EVAL)
  logits, losses = translate_model(example)
  sampling = registry.hparams(hparams_set).parse("sampling_method=random")
  sampled = registry.model(model_name)(sampling, Modes.PREDICT, hparams.problem_hparams)
  translate_model.hparams.sampling_method = "random"
  for model in (sampled, translate_model):
    assert len({str(model.infer({**example, "new": 0})["outputs"][0, :3]) for _ in range(5)}) > 1
  assert "sampling_method" in hparams.to_json() and "num_heads=2, " in str(translate_model.hparams)
  assert encoders["inputs"]._subtoken_id_to_subtoken_string(1) == "<EOS>_"
  assert Modes.EVAL == problem.DatasetSplit.EVAL  # T2T's hooks compare a split with either
"""

RUN = """
import sys
import keras
import numpy as np
import tensorflow as tf
import t2t_keras as t2t
from t2t_keras.errors import UserError

cells, data_dir, run = sys.argv[3:]
t2t.registry.problem("text2text_tmpdir").get_or_create_encoders(data_dir, data_dir)
problem = t2t.registry.problem("text2text_tmpdir")
keras.utils.set_random_seed(0)  # the notebook's `decode` fails, here and in T2T, on outputs of one id
size = problem.get_hparams(None, data_dir).vocab_size["targets"]
model = t2t.Transformer(t2t.registry.hparams("transformer_test"), source_vocab_size=size, target_vocab_size=size)
t2t.checkpoints.save_t2t(model, run + "/model.ckpt-1")
tf.io.write_file(run + "/checkpoint", 'model_checkpoint_path: "model.ckpt-1"')
notebook = {"data_dir": data_dir, "checkpoint_dir": run, "__name__": "__main__"}
exec("from t2t_keras import t2t_modules; t2t_modules.install()", notebook)
for cell in open(cells).read().split("####"):
    exec(cell, notebook)
assert not hasattr(tf, "contrib")
encoder = notebook["hparams"].problem_hparams.vocabulary["targets"]
ids = np.array([[*encoder.encode("a b c"), 1]], np.int32)
greedy, _ = t2t.decoding.greedy(model, ids, extra_length=50)
text = notebook["decode"]
assert notebook["outputs"] == text(greedy[0])
both, _ = t2t.decoding.beam_search(model, ids, beam_size=3, alpha=0.6, extra_length=50, top_beams=2)
assert notebook["beams"] == [text(beam) for beam in both[0]]
targets = np.array([[*encoder.encode("c b a"), 1]], np.int32)
logits = model({"inputs": ids, "targets": targets})
np.testing.assert_array_equal(notebook["logits"][:, :, 0, 0], logits)
loss, tokens = model.loss_sums(logits, targets)
np.testing.assert_allclose(notebook["losses"]["training"], loss / tokens, rtol=1e-6)
try:
    notebook["MySimpleModel"](notebook["hparams"], "train")
except UserError as error:
    print(error)
"""


def test_the_notebook_runs_unedited(tmp_path):
    toy.write_text(tmp_path / "data")
    (tmp_path / "run").mkdir()
    (tmp_path / "cells").write_text(CELLS)
    argv = ["python", "-c", RUN, str(tmp_path / "cells"), str(tmp_path / "data")]
    done = toy.succeeded(toy.forked([*argv, str(tmp_path / "run")]))
    assert "T2TModel is not here" in done.stdout and "not new" in done.stderr
