"""Problems, shards and buckets: the data pipeline from raw text to batches of token ids."""

from t2t_keras.data.parsing_problem import ParsingProblem
from t2t_keras.data.problem import DatasetSplit, Problem, SpaceID, VocabType
from t2t_keras.data.reading import (
    Batches,
    BatchOptions,
    batching_scheme,
    bucket_shapes,
    dataset,
    trim_padding,
)
from t2t_keras.data.text_problem import (
    ChoppedTextProblem,
    Text2ClassProblem,
    Text2SelfProblem,
    Text2TextProblem,
)
from t2t_keras.data.tfds import TfdsClassProblem, TfdsSelfProblem, TfdsTranslateProblem
from t2t_keras.data.translate import TranslateProblem

__all__ = ["BatchOptions", "Batches", "ChoppedTextProblem", "DatasetSplit", "ParsingProblem"]
__all__ += ["Problem", "SpaceID", "Text2ClassProblem", "Text2SelfProblem", "Text2TextProblem"]
__all__ += ["TfdsClassProblem", "TfdsSelfProblem", "TfdsTranslateProblem", "TranslateProblem"]
__all__ += ["VocabType", "batching_scheme", "bucket_shapes", "dataset", "trim_padding"]
