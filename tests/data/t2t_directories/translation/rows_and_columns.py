"""Parallel files in an archive, as T2T's users list them."""

from __future__ import absolute_import, division, print_function

from tensor2tensor.data_generators import problem, text_encoder, text_problems, translate
from tensor2tensor.models import transformer
from tensor2tensor.utils import registry

EOS = text_encoder.EOS_ID

_TRAIN = [["http://localhost:9/pairs.tgz", ("corpus/train.x", "corpus/train.y")]]
_DEV = [["http://localhost:9/pairs.tgz", ("corpus/dev.x", "corpus/dev.y")]]


@registry.register_problem
class TranslateXyMine(translate.TranslateProblem):
  @property
  def approx_vocab_size(self):
    return 2**8

  @property
  def dataset_splits(self):
    return [{"split": problem.DatasetSplit.TRAIN, "shards": 2},
            {"split": problem.DatasetSplit.EVAL, "shards": 1}]

  @property
  def vocab_filename(self):
    return "vocab.xy.%d" % self.approx_vocab_size

  def source_data_files(self, dataset_split):
    train = dataset_split == problem.DatasetSplit.TRAIN
    return _TRAIN if train else _DEV


@registry.register_problem()
class TranslateXyMineCharacters(TranslateXyMine):
  @property
  def vocab_type(self):
    return text_problems.VocabType.CHARACTER


@registry.register_hparams
def transformer_mine():
  hparams = transformer.transformer_tiny()
  hparams.hidden_size = 16
  hparams.filter_size = 32
  hparams.num_heads = 2
  hparams.batch_size = 256
  hparams.set_hparam("learning_rate_constant", 0.5)
  return hparams
