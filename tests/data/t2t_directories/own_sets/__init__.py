from . import sets
