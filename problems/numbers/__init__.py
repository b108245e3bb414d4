"""Spelled-out numbers in English and German: corpus of the problem `translate_ende_numbers`."""
