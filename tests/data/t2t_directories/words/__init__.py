from . import words
