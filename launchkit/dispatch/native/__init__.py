"""The launch core: guard, plan table and launch, as a Python twin of the later C core."""
