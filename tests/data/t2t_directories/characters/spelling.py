"""Characters, both splits in one, with T2T's old way of importing."""
import os

import tensorflow as tf
from tensor2tensor.data_generators.problem import DatasetSplit
from tensor2tensor.data_generators.text_problems import Text2TextProblem, VocabType, text2text_txt_iterator
from tensor2tensor.utils.registry import register_problem


@register_problem("spell_backwards")
class Spelling(Text2TextProblem):
  @property
  def is_generate_per_split(self):
    return False

  @property
  def vocab_type(self):
    return VocabType.CHARACTER

  @property
  def dataset_splits(self):
    return [
        {"split": DatasetSplit.TRAIN, "shards": 3},
        {"split": DatasetSplit.EVAL, "shards": 1},
    ]

  def generate_samples(self, data_dir, tmp_dir, dataset_split):
    tf.logging.info("reading %s", tmp_dir)
    source = os.path.join(tmp_dir, "corpus", "train.x")
    if not tf.gfile.Exists(source):
      tf.gfile.MakeDirs(os.path.dirname(source))
      raise ValueError("put the text there")
    return text2text_txt_iterator(source, source.replace(".x", ".y"))
