"""A list of words that the user brings, without <pad> and <EOS>."""
import os
import shutil

from tensor2tensor.data_generators import problem
from tensor2tensor.data_generators import text_problems
from tensor2tensor.utils import registry


@registry.register_problem
class CopyWords(text_problems.Text2TextProblem):
  @property
  def is_generate_per_split(self):
    return True

  @property
  def dataset_splits(self):
    return [{"split": problem.DatasetSplit.TRAIN, "shards": 2},
            {"split": problem.DatasetSplit.EVAL, "shards": 1}]

  @property
  def vocab_type(self):
    return text_problems.VocabType.TOKEN

  @property
  def oov_token(self):
    return "UNK"

  @property
  def vocab_filename(self):
    return "words.txt"

  def generate_samples(self, data_dir, tmp_dir, dataset_split):
    shutil.copy(os.path.join(tmp_dir, "words.txt"), data_dir)
    which = "train" if dataset_split == "train" else "dev"
    path = os.path.join(tmp_dir, "corpus", which)
    return text_problems.text2text_txt_iterator(path + ".x", path + ".y")
