"""Kernels whose launches are recorded, and launches of them."""

import sample_kernels
import torch

import launchkit
from launchkit import clock

X = torch.empty(128)
NAME = "sample_kernels.copy"


def named(name):
    return launchkit.autotuned(sample_kernels.configs(16), ["n"], name=name)(sample_kernels.copy)


def launch(kernel, times=1, grid=(1,), **options):
    for _ in range(times):
        launchkit.launch(kernel, grid, X, X, 100, 3, **options)


def known(kernel=None):
    """A kernel that has a plan for these launches."""
    kernel = kernel or named("known")
    launch(kernel, 2)
    return kernel


def waits(duration_ns):
    def grid(meta):
        start_ns = clock.now_ns()
        while clock.now_ns() - start_ns < duration_ns:
            pass
        return (1,)

    return grid


def launches_by_row(profile):
    """A profile's counts of launches by path of ranges, layer and kernel."""
    return {("/".join(row.path), row.layer, row.kernel): row.launches for row in profile.rows}
