"""Constituency parsing as text to text: trees, tensor2tensor's linearisation, and repair."""

from t2t_keras.parsing.trees import Tree, parse_tree, read_tree_file, read_trees

__all__ = ["Tree", "parse_tree", "read_tree_file", "read_trees"]
