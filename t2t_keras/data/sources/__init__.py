"""Sources of sentence pairs: downloads, archives, files in several formats."""
