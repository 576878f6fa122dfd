"""``launchkit bench import``: reading a large capture, and how such a capture is made."""
