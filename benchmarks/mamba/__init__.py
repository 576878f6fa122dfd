"""``launchkit bench mamba``: a Mamba2 prefill in cumulative steps."""
