"""The result of a recording: its tables, its file, and files put together. Above recording.

launch_profile.py is what users hold; profile_file.py and schema.py are its file.
"""
