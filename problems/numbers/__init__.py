"""Spelled-out numbers in English and German: the rules behind `translate_ende_numbers`."""
