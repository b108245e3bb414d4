"""A problem of a user, imported by scripts that call T2T's commands."""

import tensorflow as tf
from tensor2tensor.data_generators import text_problems
from tensor2tensor.utils import registry

FLAGS = tf.flags.FLAGS
tf.flags.DEFINE_string("mine", "unset", "A flag of the user.")


@registry.register_problem
class Turned(text_problems.Text2TextProblem):
  """Two words change places."""

  @property
  def is_generate_per_split(self):
    return False

  @property
  def vocab_type(self):
    return text_problems.VocabType.CHARACTER

  def generate_samples(self, data_dir, tmp_dir, dataset_split):
    print("flags", FLAGS.mine, FLAGS.vocab_size, FLAGS.worker_gpu)
    for number in range(300):
      yield {"inputs": "a %d" % number, "targets": "%d a" % number}
