"""The experiments of "Attention Is All You Need": rows of its tables, their cost, and running them.

Nothing here imports TensorFlow; the stages of a run are separate processes.
"""

from t2t_keras.paper.cost import Cost, cost, count_parameters
from t2t_keras.paper.rows import ROWS, Row, row

__all__ = ["ROWS", "Cost", "Row", "cost", "count_parameters", "row"]
