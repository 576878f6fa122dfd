"""Manifests: launches recorded, and compiled or tuned before they are needed. On top of dispatch.

document.py is the file; recording.py writes it; warming.py and offline_tuning.py work through it.
"""
