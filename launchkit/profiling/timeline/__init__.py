"""Captures of any profiler as one timeline, and what can be read from it. Above the leaves only."""
