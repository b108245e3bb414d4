"""Where sentence pairs come from: downloads, archives, files of several forms, TensorFlow Datasets."""
