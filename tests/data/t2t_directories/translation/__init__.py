from . import rows_and_columns
