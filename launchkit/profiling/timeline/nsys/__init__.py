"""Exports of Nsight Systems as timelines: SQLite, or a directory of tables. Above the model.

reader.py goes through an export; tables.py is what it reads from.
"""
