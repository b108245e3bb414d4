from . import spaces
