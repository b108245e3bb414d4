"""A training step of OpenNMT-tf 2; started by `train_step.py`."""

import atexit
import os
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import opennmt
import tensorflow as tf
from step_timing import DROPOUT, LABEL_SMOOTHING, LEARNING_RATE, answer


def make_step(spec):
    model = make_model(spec)
    optimizer = opennmt.optimizers.make_optimizer("Adam", LEARNING_RATE)
    shape = [spec["rows"], spec["length"]]
    ids = [tf.random.uniform(shape, 3, spec["vocab"], tf.int64) for _ in range(2)]
    length = tf.fill([spec["rows"]], spec["length"])
    features = {"ids": ids[0], "length": length}
    labels = {"ids": tf.roll(ids[1], 1, axis=1), "ids_out": ids[1], "length": length}
    model.create_variables(optimizer=optimizer)

    @tf.function
    def apply(gradients):
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    @tf.function(jit_compile=spec["compiled"])
    def gradients_of(features, labels):
        loss, gradients = model.compute_gradients(features, labels, optimizer)
        return loss, [tf.convert_to_tensor(gradient) for gradient in gradients]

    def step():
        loss, gradients = gradients_of(features, labels)
        apply(gradients)
        return float(loss), int(optimizer.iterations)

    versions = f"OpenNMT-tf {opennmt.__version__}, TensorFlow {tf.__version__}"
    return step, {"versions": versions, "parameters": model.count_params()}


def make_model(spec, **params):
    if spec["precision"] != "float32":
        tf.keras.mixed_precision.set_global_policy(f"mixed_{spec['precision']}")
    model = opennmt.models.Transformer(
        opennmt.inputters.WordEmbedder(embedding_size=spec["hidden"]),
        opennmt.inputters.WordEmbedder(embedding_size=spec["hidden"]),
        num_layers=spec["layers"],
        num_units=spec["hidden"],
        num_heads=spec["heads"],
        ffn_inner_dim=spec["filter"],
        dropout=DROPOUT,
        attention_dropout=DROPOUT,
        ffn_dropout=DROPOUT,
        share_embeddings=opennmt.models.EmbeddingsSharingLevel.ALL,
    )
    with tempfile.NamedTemporaryFile("w", suffix=".vocab", delete=False) as file:
        atexit.register(os.unlink, file.name)
        file.write("".join(f"{token}\n" for token in ["<blank>", "<s>", "</s>"]))
        file.writelines(f"token{i}\n" for i in range(spec["vocab"] - 4))  # and one for unknown
        file.flush()
        model.initialize(
            {"source_vocabulary": file.name, "target_vocabulary": file.name},
            params={"label_smoothing": LABEL_SMOOTHING, "average_loss_in_time": True, **params},
        )
    return model


if __name__ == "__main__":
    answer(make_step)
