"""``launchkit bench store``: what a config store costs as its keys become many."""
