"""What a model takes from the problem, its own generate_data with T2T's writers, and metrics."""
from tensor2tensor.data_generators import generator_utils, problem, text_encoder, text_problems
from tensor2tensor.utils import metrics, registry


@registry.register_problem
class Spaces(text_problems.Text2TextProblem):
  @property
  def is_generate_per_split(self):
    return True

  @property
  def approx_vocab_size(self):
    return 2**7

  @property
  def target_space_id(self):
    return problem.SpaceID.FR_TOK

  @property
  def use_subword_tokenizer(self):
    return True

  def generate_samples(self, data_dir, tmp_dir, dataset_split):
    which = "train" if dataset_split == problem.DatasetSplit.TRAIN else "dev"
    return text_problems.text2text_txt_iterator(
        "%s/corpus/%s.x" % (tmp_dir, which), "%s/corpus/%s.y" % (tmp_dir, which))

  def generate_data(self, data_dir, tmp_dir, task_id=-1):
    train = self.training_filepaths(data_dir, 2, shuffled=False)
    dev = self.dev_filepaths(data_dir, 1, shuffled=False)
    generator_utils.generate_dataset_and_shuffle(
        self.generate_encoded_samples(data_dir, tmp_dir, problem.DatasetSplit.TRAIN), train,
        self.generate_encoded_samples(data_dir, tmp_dir, problem.DatasetSplit.EVAL), dev)

  def hparams(self, defaults, unused_model_hparams):
    super(Spaces, self).hparams(defaults, unused_model_hparams)
    p = defaults
    p.loss_multiplier = 1.5
    p.input_space_id = problem.SpaceID.EN_TOK
    p.target_space_id = problem.SpaceID.DE_TOK
    p.vocab_size["inputs"] = self._encoders["inputs"].vocab_size + 3

  def eval_metrics(self):
    return [metrics.Metrics.ACC, metrics.Metrics.ACC_PER_SEQ, metrics.Metrics.EDIT_DISTANCE]

  @property
  def decode_hooks(self):
    return []
