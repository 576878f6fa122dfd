"""Kernels of the Mamba2 state-space scan (SSD), one module a kernel, and the whole op.

Names follow the field's: T tokens, H heads, P head dimension, G groups, N state dimension, S
sequences, Q tokens of the longest chunk. A chunk is up to ``chunk_size`` tokens of one sequence.
Most wrappers have their module's name, so all are imported from their module:
``from launchkit.kernels.ssd.state_passing import state_passing``.
"""
