"""From raw text to batches of token ids: problems, shards, buckets."""

from t2t_keras.data.batching import batching_scheme, bucket_shapes

__all__ = ["batching_scheme", "bucket_shapes"]
