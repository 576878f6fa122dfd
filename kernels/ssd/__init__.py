"""Kernels of the Mamba2 state-space scan (SSD), one module a kernel.

Names follow the field's: H heads, P head dimension, N state dimension, S sequences. A chunk
is up to ``chunk_size`` tokens of one sequence. A module's wrapper has the module's name, so
it is imported from there: ``from launchkit.kernels.ssd.state_passing import state_passing``.
"""
