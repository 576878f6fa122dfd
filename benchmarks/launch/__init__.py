"""``launchkit bench launch``: host microseconds per launch, by the way it is launched."""
