"""``launchkit bench serve``: a hybrid stack served, by launch path."""
