"""Sets from T2T's ancestors by assignment, names of TF 1, a model of the user's own that stays unused."""
import tensorflow as tf
from tensor2tensor.data_generators import problem, text_problems
from tensor2tensor.layers import common_attention, common_hparams, common_layers
from tensor2tensor.models import lstm, transformer
from tensor2tensor.utils import expert_utils, registry, t2t_model, trainer_lib

trainer_lib.set_random_seed(301)
tf.logging.set_verbosity(tf.logging.INFO)
ModeKeys = tf.estimator.ModeKeys
layers = tf.contrib.layers


@registry.register_model
class MyLayers(t2t_model.T2TModel):
  def body(self, features):
    return common_layers.dense(features["inputs"], 4, activation=tf.nn.relu)


@expert_utils.add_name_scope("mine")
def helper(x):
  return common_attention.add_timing_signal_1d(tf.to_float(x))


@registry.register_hparams
def mine_from_the_start():
  hparams = common_hparams.basic_params1()
  hparams.norm_type = "layer"
  hparams.hidden_size = 16
  hparams.max_length = 64
  hparams.batch_size = 512
  hparams.learning_rate_decay_scheme = "noam"
  hparams.learning_rate_warmup_steps = 10
  hparams.add_hparam("filter_size", 32)
  hparams.add_hparam("num_heads", 2)
  hparams.add_hparam("my_own_number", 7)
  hparams.parse("num_hidden_layers=1,label_smoothing=0.0")
  if hparams.get("unknown", None) is None:
    hparams.del_hparam("unknown")
  return hparams


@registry.register_hparams
def mine_for_tpu():
  hparams = transformer.transformer_small()
  transformer.update_hparams_for_tpu(hparams)
  return hparams


@registry.register_hparams("mine_of_lstm")
def of_lstm():
  hparams = lstm.lstm_attention()
  hparams.hidden_size = 16
  return hparams


@registry.register_ranged_hparams
def mine_range(rhp):
  rhp.set_float("learning_rate", 0.05, 0.25)


@registry.register_problem
class OneToAnother(text_problems.Text2TextProblem):
  @property
  def approx_vocab_size(self):
    return 2**7

  @property
  def is_generate_per_split(self):
    return False

  @property
  def dataset_splits(self):
    return [{"split": problem.DatasetSplit.TRAIN, "shards": 2},
            {"split": problem.DatasetSplit.EVAL, "shards": 1}]

  def generate_samples(self, data_dir, tmp_dir, dataset_split):
    with tf.gfile.Open(tmp_dir + "/corpus/train.x") as x, tf.gfile.GFile(tmp_dir + "/corpus/train.y") as y:
      for a, b in zip(x, y):
        yield {"inputs": a.strip(), "targets": b.strip()}
