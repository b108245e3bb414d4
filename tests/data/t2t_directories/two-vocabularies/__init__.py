from . import xy
