"""Parse trees: reading and writing, tensor2tensor's linearisation, and repair of model outputs."""

from t2t_keras.parsing.repair import Repairs, repair_tree, to_tree
from t2t_keras.parsing.trees import (
    Tree,
    linearize,
    parse_tree,
    read_tree_file,
    read_trees,
    strip_for_parsing,
)

__all__ = ["Repairs", "Tree", "linearize", "parse_tree", "read_tree_file", "read_trees"]
__all__ += ["repair_tree", "strip_for_parsing", "to_tree"]
