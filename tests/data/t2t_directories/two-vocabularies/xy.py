"""A vocabulary for each language, built by T2T's functions."""
import os
import tarfile

from tensor2tensor.data_generators import generator_utils
from tensor2tensor.data_generators import problem
from tensor2tensor.data_generators import text_encoder
from tensor2tensor.data_generators import text_problems
from tensor2tensor.data_generators import translate
from tensor2tensor.utils import registry
import tensorflow as tf

FLAGS = tf.flags.FLAGS

_TRAIN = [["http://localhost:9/none.tgz", ["corpus/train.x", "corpus/train.y"]]]
_DEV = [["http://localhost:9/none.dev.tgz", ("corpus/dev.x", "corpus/dev.y")]]


@registry.register_problem
class TranslateXyTwo(translate.TranslateProblem):
  @property
  def approx_vocab_size(self):
    return 2**7

  @property
  def dataset_splits(self):
    return [{"split": problem.DatasetSplit.TRAIN, "shards": 2},
            {"split": problem.DatasetSplit.EVAL, "shards": 1}]

  @property
  def source_vocab_name(self):
    return "vocab.x.%d" % self.approx_vocab_size

  @property
  def target_vocab_name(self):
    return "vocab.y.%d" % self.approx_vocab_size

  def generate_encoded_samples(self, data_dir, tmp_dir, dataset_split):
    train = dataset_split == problem.DatasetSplit.TRAIN
    datasets = _TRAIN if train else _DEV
    for item in datasets:
      dummy = os.path.join(tmp_dir, item[0].split("/")[-1])
      if not os.path.exists(dummy):
        tf.logging.info("making %s", dummy)
        tarfile.open(dummy, "w:gz").close()
    source_vocab = generator_utils.get_or_generate_vocab(
        data_dir, tmp_dir, self.source_vocab_name, self.approx_vocab_size,
        [[item[0], [item[1][0]]] for item in _TRAIN], file_byte_budget=1e4)
    target_vocab = generator_utils.get_or_generate_vocab(
        data_dir, tmp_dir, self.target_vocab_name, self.approx_vocab_size,
        [[item[0], [item[1][1]]] for item in _TRAIN], file_byte_budget=1e4)
    data_path = translate.compile_data(tmp_dir, datasets, "xy_%s" % ("train" if train else "dev"))
    return text_problems.text2text_generate_encoded(
        text_problems.text2text_txt_iterator(data_path + ".lang1", data_path + ".lang2"),
        source_vocab, target_vocab)

  def feature_encoders(self, data_dir):
    return {
        "inputs": text_encoder.SubwordTextEncoder(os.path.join(data_dir, self.source_vocab_name)),
        "targets": text_encoder.SubwordTextEncoder(os.path.join(data_dir, self.target_vocab_name)),
    }
