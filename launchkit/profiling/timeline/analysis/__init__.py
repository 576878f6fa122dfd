"""What a timeline says of a program's launches, ranges and GPUs. Above the model, below what_if.

analysis.py asks all of it; comparing.py sets two answers side by side; each other module is one
question.
"""
