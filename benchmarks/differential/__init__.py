"""``launchkit bench differential``: what launchkit launches and what Triton launches."""
