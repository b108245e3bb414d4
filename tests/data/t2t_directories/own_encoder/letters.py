"""An encoder of the user's own, and samples that are encoded by hand."""
from tensor2tensor.data_generators import problem
from tensor2tensor.data_generators import text_encoder
from tensor2tensor.data_generators import text_problems
from tensor2tensor.layers import common_layers, modalities
from tensor2tensor.utils import registry

LETTERS = "abcdefgh"


class LetterEncoder(text_encoder.TextEncoder):
  def __init__(self):
    super(LetterEncoder, self).__init__(num_reserved_ids=2)

  def encode(self, s):
    return [LETTERS.index(c) + self._num_reserved_ids for c in s if c in LETTERS]

  def decode(self, ids, strip_extraneous=False):
    return " ".join(LETTERS[i - 2] if 2 <= i < 10 else "?" for i in ids)

  @property
  def vocab_size(self):
    return len(LETTERS) + 2


@registry.register_problem
class Letters(text_problems.Text2TextProblem):
  @property
  def is_generate_per_split(self):
    return True

  @property
  def dataset_splits(self):
    return [{"split": problem.DatasetSplit.TRAIN, "shards": 2},
            {"split": problem.DatasetSplit.EVAL, "shards": 1}]

  def feature_encoders(self, data_dir):
    del data_dir
    encoder = LetterEncoder()
    return {"inputs": encoder, "targets": encoder}

  def generate_encoded_samples(self, data_dir, tmp_dir, dataset_split):
    which = "train" if dataset_split == "train" else "dev"
    samples = text_problems.text2text_txt_iterator(
        "%s/corpus/%s.x" % (tmp_dir, which), "%s/corpus/%s.y" % (tmp_dir, which))
    return text_problems.text2text_generate_encoded(samples, LetterEncoder())

  def hparams(self, defaults, unused_model_hparams):
    p = defaults
    p.stop_at_eos = int(True)
    p.modality = {"inputs": modalities.ModalityType.SYMBOL, "targets": modalities.ModalityType.SYMBOL}
    p.vocab_size = {"inputs": self._encoders["inputs"].vocab_size,
                    "targets": self._encoders["targets"].vocab_size}

  def preprocess_example(self, example, mode, unused_hparams):
    example["targets"] = common_layers.flatten(example["targets"])
    return example
