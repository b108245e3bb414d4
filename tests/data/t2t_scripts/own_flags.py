"""Generates data and trains twice, with flags of its own."""

import my_problems
import tensorflow as tf
from tensor2tensor.bin import t2t_datagen
from tensor2tensor.bin import t2t_trainer

flags = tf.flags
FLAGS = flags.FLAGS
flags.DEFINE_integer("vocab_size", 1, "A flag that commands of ours have, too.")


def main(argv):
  FLAGS.problem = "turned"
  FLAGS.worker_gpu = 1
  t2t_datagen.main(argv)
  for steps in (1, 2):
    FLAGS.train_steps = steps
    t2t_trainer.main(argv)
  print("trained", t2t_trainer.FLAGS.train_steps, "steps, flags", FLAGS.mine, FLAGS.vocab_size)


if __name__ == "__main__":
  tf.logging.set_verbosity(tf.logging.INFO)
  tf.app.run()
