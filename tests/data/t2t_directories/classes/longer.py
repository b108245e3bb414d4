"""Text classes, derived from T2T's sentiment of IMDB, with its own set."""
import os

from tensor2tensor.data_generators import generator_utils, imdb, problem
from tensor2tensor.models import transformer
from tensor2tensor.utils import registry


@registry.register_problem
class WhichIsLonger(imdb.SentimentIMDB):
  @property
  def is_generate_per_split(self):
    return False

  @property
  def dataset_splits(self):
    return [{"split": problem.DatasetSplit.TRAIN, "shards": 2},
            {"split": problem.DatasetSplit.EVAL, "shards": 1}]

  @property
  def approx_vocab_size(self):
    return 2**8

  @property
  def vocab_filename(self):
    return "longer.vocab.%d" % self.approx_vocab_size

  @property
  def num_classes(self):
    return 2

  @staticmethod
  def class_labels(data_dir):
    del data_dir
    return ["short", "long"]

  def generate_samples(self, data_dir, tmp_dir, dataset_split):
    name = "pairs.tgz"
    generator_utils.maybe_download(tmp_dir, name, "http://localhost:9/" + name)
    with open(os.path.join(tmp_dir, "corpus", "train.x")) as lines:
      for line in lines:
        yield {"inputs": line.strip(), "label": int(len(line) > 12)}


@registry.register_hparams
def transformer_longer():
  hparams = transformer.transformer_base_single_gpu()
  hparams.num_hidden_layers = 1
  hparams.hidden_size = 16
  hparams.filter_size = 16
  hparams.num_heads = 2
  return hparams
