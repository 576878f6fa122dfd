"""Fresh tensors full of NaN, so that an element that a kernel leaves unwritten is seen."""

import torch


def poison_fresh_tensors(monkeypatch):
    """Fill what torch.empty and torch.empty_like make with NaN, where the dtype has one."""
    for name in ("empty", "empty_like"):
        monkeypatch.setattr(torch, name, _poisoned(getattr(torch, name)))


def _poisoned(allocate):
    def wrapper(*args, **kwargs):
        tensor = allocate(*args, **kwargs)
        fillable = tensor.is_floating_point() and tensor.layout is torch.strided
        return tensor.fill_(torch.nan) if fillable else tensor

    return wrapper
