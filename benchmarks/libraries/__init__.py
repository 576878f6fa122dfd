"""``launchkit bench libraries``: other people's operators with and without install()."""
