from classes.longer import *
