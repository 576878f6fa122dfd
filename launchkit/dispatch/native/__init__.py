"""The launch core: guard, plan table and launch, in C and in its Python twin. Below keeping.py."""
