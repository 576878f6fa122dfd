"""Tuning of one key: prune, protect the arguments, measure, choose. Below choosing.py.

one_key.py goes through it; options.py says how a kernel asks to be tuned.
"""
