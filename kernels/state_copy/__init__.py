"""Copies of Mamba state blocks between cache blocks of a paged cache, one launch for all layers.

Modules: ``memcpy`` moves bytes between addresses; ``block`` one state's block of a request;
``align`` prepares a step (``preprocess``, ``precopy``), ``postprocess`` ends it; ``layout``
describes the state tensors to the kernels; ``reference`` says the same in plain Python.

Words: a *block* is one row of a state tensor, named by an id; a *column* is a place in a
request's block table, which holds ids; a *slot* is a request's row in per-request tensors, a
*batch row* its place in the current step. -1 is no column, no slot. Id 0 is the null block,
which the kernels copy like any other: who fills the tables keeps it out of them.
"""
