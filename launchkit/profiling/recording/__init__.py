"""What a recording counts, and how it gets it. Leaves: recorder.py puts them to dispatch's slots.

core.py and slots.py record, with the C core and without; tally.py is what they fill.
"""
