"""``launchkit bench fuzz``: every reader of files, and files that somebody broke or forged."""
