"""T2T's trainer with problems of the user."""

import my_problems
import tensorflow as tf
from tensor2tensor.bin import t2t_trainer

if __name__ == "__main__":
  tf.logging.set_verbosity(tf.logging.INFO)
  tf.app.run(t2t_trainer.main)
