"""Random problems of the Mamba2 scan, on the CPU or a GPU, and how far a result may be off."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace

import torch

from launchkit.kernels.ssd.bmm import _bmm_chunk_fwd_kernel
from launchkit.kernels.ssd.chunk_cumsum import _chunk_cumsum_fwd_kernel
from launchkit.kernels.ssd.chunk_scan import _chunk_scan_fwd_kernel
from launchkit.kernels.ssd.chunk_state import _chunk_state_fwd_kernel
from launchkit.kernels.ssd.metadata import build_chunk_metadata
from launchkit.kernels.ssd.reference import (
    rounding_tolerance,
    ssd_chunked_reference,
    ssd_recurrence_reference,
    steps_reference,
)
from launchkit.kernels.ssd.scan import mamba_chunk_scan_combined_varlen
from launchkit.kernels.ssd.state_passing import _state_passing_fwd_kernel

KERNELS = (
    _chunk_cumsum_fwd_kernel,
    _chunk_state_fwd_kernel,
    _state_passing_fwd_kernel,
    _bmm_chunk_fwd_kernel,
    _chunk_scan_fwd_kernel,
)
GUARD_BYTE = 0xA5


@dataclass(frozen=True)
class Problem:
    """Inputs of one scan. ``options`` are keyword arguments that the references take too."""

    lengths: tuple[int, ...]
    chunk_size: int
    x: torch.Tensor
    dt: torch.Tensor
    A: torch.Tensor
    B: torch.Tensor
    C: torch.Tensor
    options: dict = field(default_factory=dict)
    computed: tuple[int, ...] | None = None
    checkpoints: tuple[int, ...] | None = None

    @property
    def bounds(self):
        return [0, *itertools.accumulate(self.lengths)]

    @property
    def metadata(self):
        return build_chunk_metadata(
            self.bounds, self.chunk_size, self.computed, self.checkpoints, self.x.device
        )

    def with_options(self, **options):
        """Return the same problem with other options; None takes one away."""
        merged = {**self.options, **options}
        return replace(
            self, options={name: value for name, value in merged.items() if value is not None}
        )

    def tokens(self, start, stop, computed=None, **options):
        """Return the problem of the tokens from ``start`` to ``stop`` as one sequence.

        Its tensors are copies, so that they are aligned as the whole problem's are.
        """
        cut = {name: getattr(self, name)[start:stop].clone() for name in ("x", "dt", "B", "C")}
        z = self.options.get("z")
        part = replace(self, lengths=(stop - start,), computed=computed, checkpoints=None, **cut)
        return part.with_options(z=None if z is None else z[start:stop].clone(), **options)


def make_problem(
    lengths,
    heads=2,
    headdim=8,
    dstate=16,
    groups=1,
    chunk_size=16,
    dtype=torch.float32,
    seed=0,
    device="cpu",
    decay=2.0,
    **kinds,
):
    """Return a random problem; ``kinds`` are passed to ``extras``."""
    rng = torch.Generator(device).manual_seed(seed)

    def uniform(low, high, *shape):
        return torch.rand(*shape, generator=rng, device=device) * (high - low) + low

    total = sum(lengths)
    softplus = kinds.get("softplus", False)
    problem = Problem(
        lengths=tuple(lengths),
        chunk_size=chunk_size,
        x=uniform(-2, 2, total, heads, headdim).to(dtype),
        dt=uniform(*((-3, 1) if softplus else (0.01, 0.3)), total, heads).to(dtype),
        A=-uniform(0.1, decay, heads),
        B=uniform(-1, 1, total, groups, dstate).to(dtype),
        C=uniform(-1, 1, total, groups, dstate).to(dtype),
    )
    return problem.with_options(**extras(problem, uniform, **kinds))


def extras(problem, uniform, D=None, z=False, bias=False, initial=None, softplus=False, limit=None):
    """Return options. D: "head" or "channel"; initial: the dtype of the initial states."""
    total, heads, headdim = problem.x.shape
    states = (len(problem.lengths), heads, headdim, problem.B.shape[2])
    sizes = {"head": (heads,), "channel": (heads, headdim), None: ()}[D]
    return {
        "D": uniform(-2, 2, *sizes) if D else None,
        "z": uniform(-3, 3, total, heads, headdim).to(problem.x.dtype) if z else None,
        "dt_bias": uniform(-0.5, 0.5, heads) if bias else None,
        "initial_states": uniform(-2, 2, *states).to(initial) if initial else None,
        "dt_softplus": softplus or None,
        "dt_limit": limit,
    }


def everything(initial=torch.float32, D="channel"):
    """Return the kinds of a problem in which nothing is left out."""
    return {
        "D": D,
        "z": True,
        "bias": True,
        "initial": initial,
        "softplus": True,
        "limit": (0.02, 1.5),
    }


def make_cache(slots, heads, headdim, dstate, dtype, device="cpu", padding=64):
    """Return (bytes, view): a cache of padded pages in a buffer of guard bytes."""
    row = heads * headdim * dstate
    page = row + padding
    size = slots * page * torch.finfo(dtype).bits // 8
    raw = torch.full((size,), GUARD_BYTE, dtype=torch.uint8, device=device)
    strides = (page, headdim * dstate, dstate, 1)
    return raw, raw.view(dtype).as_strided((slots, heads, headdim, dstate), strides)


def recurrence(problem):
    """Return the float64 output and final states, token by token."""
    p = problem
    bounds = torch.tensor(p.bounds)
    return ssd_recurrence_reference(p.x, p.dt, p.A, p.B, p.C, bounds, **p.options)


def chunked(problem):
    """Return the float64 output, states after every chunk, and final states, by chunks."""
    p, m = problem, problem.metadata
    last = m.last_chunk_indices
    return ssd_chunked_reference(
        p.x, p.dt, p.A, p.B, p.C, p.chunk_size, m.cu_chunk_seqlens, last, m.seq_idx, **p.options
    )


def magnitudes(problem):
    """Return what ``chunked`` does, summed over absolute values."""
    p, options = problem, dict(problem.options)
    z = options.pop("z", None)
    for name in ("D", "initial_states"):
        if name in options:
            options[name] = options[name].abs()
    absolute = {name: getattr(p, name).abs() for name in ("x", "B", "C")}
    out, states, final = chunked(replace(p, options=options, **absolute))
    if z is not None:
        out = out * torch.nn.functional.silu(z.double().cpu()).abs()
    return out, states, final


def steps_of(problem):
    """Return the fp32 operations behind any one result, as ``rounding_tolerance`` counts."""
    p = problem
    names = ("dt_bias", "dt_softplus", "dt_limit")
    options = {name: p.options[name] for name in names if name in p.options}
    decays = steps_reference(p.dt, **options) * p.A.double().cpu()
    summed = [
        -decays[start:stop].sum(0).min().item()
        for start, stop in itertools.pairwise(p.bounds)
        if stop > start
    ]
    products = (p.chunk_size + p.B.shape[2]) / 2
    return products + max(p.lengths, default=0) / p.chunk_size + 1 + max(summed, default=0.0)


def check(
    problem,
    out=None,
    final=None,
    states=None,
    *,
    interpreted=False,
    state_dtype=None,
    carried=None,
    steps=None,
):
    """Compare results with the float64 ones, within the roundings that the scan may make.

    state_dtype: of the states that chunks hand on, by default that of C. ``final`` and
    ``states`` may have any dtype. carried: the dtype in which a state was kept on its way,
    besides, if any. interpreted: the products were exact and casts to bf16 cut off. steps: the
    fp32 operations to allow for, by default those of ``steps_of``.
    """
    steps = steps_of(problem) if steps is None else steps
    names = ("out", "states", "final")
    expected = dict(zip(names, chunked(problem), strict=True))
    magnitude = dict(zip(names, magnitudes(problem), strict=True))
    losses = losses_of(problem.C.dtype, state_dtype or problem.C.dtype, carried, interpreted)
    for name, actual in {"out": out, "states": states, "final": final}.items():
        if actual is not None:
            limit = rounding_tolerance(
                expected[name], magnitude[name], steps, actual.dtype, losses[name]
            )
            if interpreted and actual.dtype == torch.bfloat16:
                limit = limit + half_ulp(actual.dtype) * expected[name].abs()
            if problem.C.dtype == torch.float16 or torch.float16 in (state_dtype, carried):
                # Summands below fp16's range are lost.
                limit = limit + 2.0**-24 * problem.chunk_size * (1 + magnitude[name])
            assert_within(actual, expected[name], limit)


def losses_of(dtype, state_dtype, carried, interpreted):
    """Return what operands and states lose where they are rounded, as parts of a magnitude."""
    kept = half_ulp(state_dtype) * (1 + (interpreted and state_dtype == torch.bfloat16))
    before = 0.0 if carried is None else half_ulp(carried)
    if dtype != torch.float32:
        # Weights, scaled B and entering states are rounded; all else is multiplied as it is.
        scaled, products = half_ulp(dtype), 2 * half_ulp(dtype)
    elif interpreted:
        scaled, products = 0.0, 0.0
    else:
        # A GPU drops the last 13 bits of both operands of each of two products: TF32.
        scaled, products = 2 * 2.0**-10, 4 * 2.0**-10
    return {"out": products + kept + before, "states": scaled + before, "final": scaled + before}


def half_ulp(dtype):
    return torch.finfo(dtype).eps / 2


def assert_within(actual, expected, limit):
    assert actual.shape == expected.shape
    error = (actual.double().cpu() - expected).abs()
    assert error.isfinite().all()
    worst = (error / limit).max().item() if error.numel() else 0.0
    assert worst <= 1, f"off by {worst:.3g} times what rounding explains"


def same_bits(left, right):
    return torch.equal(left.contiguous().view(torch.uint8), right.contiguous().view(torch.uint8))


def scan(problem, **options):
    """Run the scan; return (out, what it returned). Nothing around ``out`` may change.

    ``out`` is poisoned first, as are the tokens before and behind it. ``options`` are those of
    the scan, and ``out`` and ``metadata`` to be used instead of the problem's own. With both
    of those nothing here makes a GPU wait.
    """
    p, m = problem, options.pop("metadata", None) or problem.metadata
    total, *sizes = p.x.shape
    around, out = None, options.pop("out", None)
    if out is None:
        around = torch.full((total + 2, *sizes), torch.nan, dtype=p.x.dtype, device=p.x.device)
        out = around[1 : total + 1]
    returned = mamba_chunk_scan_combined_varlen(
        p.x,
        p.dt,
        p.A,
        p.B,
        p.C,
        p.chunk_size,
        m.cu_seqlens,
        m.cu_chunk_seqlens,
        m.last_chunk_indices,
        m.seq_idx,
        out,
        **{**p.options, **options},
    )
    if around is not None:
        assert around[[0, -1]].isnan().all()
    return out, returned


def pin_first_configs(monkeypatch):
    """Leave each of the scan's kernels its first config, which is right on every GPU."""
    for kernel in KERNELS:
        monkeypatch.setattr(kernel, "configs", kernel.configs[:1])


def scan_into_cache(problem, dtype=torch.float32, slots=None, index_dtype=torch.int32, **options):
    """Run the scan with the fused final write; return (out, the cache's bytes, cache).

    slots: of each sequence, by default s + 1 of a cache with a slot more at either end.
    """
    _, heads, headdim = problem.x.shape
    slots = range(1, len(problem.lengths) + 1) if slots is None else slots
    rows = max([len(problem.lengths), *slots], default=0) + 2
    raw, cache = make_cache(rows, heads, headdim, problem.B.shape[2], dtype, problem.x.device)
    indices = torch.tensor(list(slots), dtype=index_dtype, device=problem.x.device)
    out, returned = scan(problem, final_states_out=cache, final_state_indices=indices, **options)
    assert returned is None
    return out, raw, cache


def assert_only_slots_changed(raw, cache, slots):
    """Raise unless every byte outside ``slots`` is still a guard byte; clears the slots."""
    cache[torch.tensor(slots)] = torch.zeros((), dtype=cache.dtype, device=cache.device)
    written = len(slots) * cache[0].numel() * cache.element_size()
    assert raw.count_nonzero().item() == raw.numel() - written
    assert (raw[raw != 0] == GUARD_BYTE).all()
