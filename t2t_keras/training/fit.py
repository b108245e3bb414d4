"""Plain `model.fit` that does what the trainer's step does."""

from __future__ import annotations

import tensorflow as tf

from t2t_keras.training.step import mask_seeds, philox_keep_mask


def prepare_fit(model, seed: int = 0) -> None:
    """Makes `fit` draw dropout as the trainer does, and weigh the tokens of all replicas alike.

    Without it, masks are Keras's: not repeated after a restart, and the same on all replicas. To
    be called after `compile`; it holds for all later calls of `fit`. A mask also depends on the shape
    of its batch: the trainer's batches are, without XLA, those of `data.without_spare_columns`.

    Args:
        model: a `Transformer`, compiled without a loss.
        seed: of the masks, which depend on it, the step, the replica and the call site.
    """

    def masks():
        return philox_keep_mask(mask_seeds(seed, model.optimizer.iterations))

    model.dropout_masks = masks
    model.sum_over_replicas = lambda x: tf.distribute.get_replica_context().all_reduce("SUM", x)
