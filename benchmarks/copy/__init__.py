"""``launchkit bench copy``: how fast Mamba states are copied, and what a step costs the host."""
