"""Shards written by TensorFlow, as T2T writes them."""

from contextlib import ExitStack

import tensorflow as tf

from t2t_keras.data.shards import shard_paths


def write_shards(directory, name, split, examples, shards=1):
    """Deals examples, {field: ids} each, to the shards of a split; returns their paths."""
    paths = shard_paths(directory, name, split, shards)
    with ExitStack() as stack:
        writers = [stack.enter_context(tf.io.TFRecordWriter(str(path))) for path in paths]
        for number, example in enumerate(examples):
            features = {
                field: tf.train.Feature(int64_list=tf.train.Int64List(value=ids))
                for field, ids in example.items()
            }
            message = tf.train.Example(features=tf.train.Features(feature=features))
            writers[number % shards].write(message.SerializeToString())
    return paths
