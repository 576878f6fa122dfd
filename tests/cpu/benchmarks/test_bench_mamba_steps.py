"""The steps of the Mamba benchmark differ in host cost alone, and their launches are counted."""

from __future__ import annotations

import pytest
import torch

from launchkit.benchmarks import pinned_configs
from launchkit.benchmarks.mamba import counts as mamba_counts
from launchkit.benchmarks.mamba import steps
from launchkit.benchmarks.mamba.cases import MambaCase, build
from launchkit.benchmarks.mode import measuring
from launchkit.kernels.ssd.tiles import keeps_operand_in_flight

CASES = [
    MambaCase("Nemotron-3-Nano", sequences=3, tokens=331, initial_states=True),
    MambaCase("Granite-4.0-h-micro", sequences=1, tokens=32, initial_states=False),
]


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request):
    return request.param


@pytest.fixture
def timed(case):
    """The parts of a case, on the host-only driver, which records."""
    with measuring(record=True) as cuda, pinned_configs.pinned() as ours:
        assert not cuda
        inputs = build(case, "cpu")
        yield inputs, steps.parts(inputs, pinned_configs.triton_kernels(), ours)


def launches_of(part, inputs):
    """A part's launches, an address replaced by its tensor's name or its order of appearance."""
    from launchkit import hostonly

    for _ in range(3):  # compiled, watched, replayed
        part.call()
    hostonly.clear()
    part.call()
    names = {address.to_bytes(8, "little"): name for name, address in addresses(inputs).items()}
    workspace = {}

    def known(value):
        if len(value) != 8 or int.from_bytes(value, "little") < 2**32:
            return value
        return names.get(value) or workspace.setdefault(value, f"workspace {len(workspace)}")

    return [
        (one.function, one.grid, one.block, one.shared_bytes, one.attributes,
         tuple(known(value) for value in one.params))
        for one in hostonly.launches()
    ]  # fmt: skip


def addresses(inputs):
    tensors = {**vars(inputs), **vars(inputs.metadata)}
    return {
        name: value.data_ptr() for name, value in tensors.items() if isinstance(value, torch.Tensor)
    }


def test_every_step_makes_the_same_launches(timed):
    inputs, parts = timed
    made = {(part.step, part.what): launches_of(part, inputs) for part in parts}
    for step in steps.STEPS:
        assert made[step, "scan"] == made["lean_wrappers", "scan"], step
        if step != "baseline":
            assert made[step, "layer"] == made["lean_wrappers", "layer"], step
    assert made["baseline", "layer"] == made["baseline", "scan"]
    assert made["baseline", "writeback"] == []
    used = {name for launch in made["lean_wrappers", "layer"] for name in launch[-1]}
    wanted = {"x", "dt", "A", "B", "C", "D", "dt_bias", "out", "ssm_state", "state_indices"}
    assert wanted <= used


def test_the_step_named_launch_autotuned_launches_with_it_and_no_other_does(timed, monkeypatch):
    launched, real = [], steps.launch_autotuned
    monkeypatch.setattr(
        steps,
        "launch_autotuned",
        lambda kernel, *args, **kwargs: launched.append(kernel) or real(kernel, *args, **kwargs),
    )
    for part in timed[1]:
        launched.clear()
        part.call()
        kernels = pinned_configs.LAUNCHKIT_KERNELS if part.step == "launch_autotuned" else ()
        assert launched == list(kernels), part.step


def test_launches_are_counted_with_those_of_torch(timed):
    _, parts = timed
    counts = mamba_counts.count(parts, cuda=False)
    assert counts["baseline", "scan"] == 5
    assert counts["baseline", "writeback"] == 4
    assert counts["baseline", "layer"] == 9
    for step in steps.STEPS[1:]:
        assert counts[step, "scan"] == counts[step, "layer"] == 5


def test_an_operation_that_is_not_known_counts_as_a_launch():
    assert mamba_counts.torch_launches(["aten::view", "aten::empty", "aten::to"]) == 0
    assert mamba_counts.torch_launches(["aten::to", "aten::copy_", "aten::new_in_2030"]) == 2


def test_what_runs_between_markers_is_counted():
    names = ["noop_0", "a", "Memcpy DtoD", "noop_0", "noop_0", "b", "noop_0"]
    assert mamba_counts.between_markers(names) == [2, 0, 1]
    assert mamba_counts.between_markers([]) == []


def test_the_first_of_two_configs_runs_and_tritons_autotuner_builds_a_key(timed):
    inputs, _ = timed
    kernels = pinned_configs.triton_kernels()
    for part in steps.parts(inputs, kernels, kernels):
        part.call()
    for name, kernel in kernels._asdict().items():
        first, second = pinned_configs.PINNED_CONFIGS[name]
        assert kernel.configs == [first, second]
        assert set(kernel.cache.values()) == {first}, name
        assert all("torch.float32" in key for key in kernel.cache), name


def test_pinned_configs_are_among_those_that_tuning_would_try():
    for name, kernel in pinned_configs.LAUNCHKIT_KERNELS._asdict().items():
        assert set(pinned_configs.PINNED_CONFIGS[name]) <= set(kernel.configs), name


def test_no_pinned_config_of_the_chunk_scan_is_miscompiled_on_hopper():
    pair = pinned_configs.PINNED_CONFIGS["chunk_scan"]
    assert not any(keeps_operand_in_flight(config) for config in pair)


def test_configs_are_as_before_once_nothing_is_pinned():
    def state():
        return [
            (kernel.configs, kernel.early_config_prune, kernel.cache)
            for kernel in pinned_configs.LAUNCHKIT_KERNELS
        ]

    before = state()
    with pytest.raises(KeyboardInterrupt), pinned_configs.pinned():
        raise KeyboardInterrupt
    for old, new in zip(before, state(), strict=True):
        assert all(one is other for one, other in zip(old, new, strict=True))


def test_a_fused_write_back_is_the_difference_of_the_same_round():
    values = {("baseline", "scan"): [5.0], ("baseline", "writeback"): [3.0]}
    values |= {(step, "layer"): [7.5] for step in steps.STEPS}
    values |= {(step, "scan"): [7.0] for step in steps.STEPS[1:]}
    found = steps.per_op(values)
    assert found["ssd_scan", "baseline"] == [5.0]
    assert found["final_state_writeback", "baseline"] == [3.0]
    assert found["layer", "baseline"] == [7.5]
    for step in steps.STEPS[1:]:
        assert found["ssd_scan", step] == found["layer", step] == [7.5]
        assert found["final_state_writeback", step] == [0.5]
