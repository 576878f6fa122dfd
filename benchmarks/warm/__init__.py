"""``launchkit bench warm``: how long a fresh process takes to its first prefill."""
