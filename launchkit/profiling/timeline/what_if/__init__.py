"""What changes at launches would make of the step time. Above the analysis.

prediction.py answers; program.py is what replay.py replays.
"""
