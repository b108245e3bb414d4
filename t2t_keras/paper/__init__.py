"""The experiments of "Attention Is All You Need": what they are, what they cost, and running them.

Nothing here imports TensorFlow; the stages of a run are programs of their own.
"""

from t2t_keras.paper.cost import Cost, cost, count_parameters
from t2t_keras.paper.rows import ROWS, Row, row

__all__ = ["ROWS", "Cost", "Row", "cost", "count_parameters", "row"]
