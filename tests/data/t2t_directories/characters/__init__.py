from characters.spelling import *
