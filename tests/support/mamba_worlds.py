"""launchkit's ways to do the "align" cache mode's copies, each with states of its own."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import numpy as np
import torch
from mamba_reference import ReferenceWorld
from mamba_schedule import Engine
from mamba_states import States

from launchkit.kernels.state_copy.buffers import CpuGpuBuffer, MambaBuffers
from launchkit.kernels.state_copy.copy_specs import (
    get_conv_copy_spec,
    get_temporal_copy_spec,
    set_conv_state_layout,
)
from launchkit.kernels.state_copy.host_align import (
    postprocess_mamba,
    preprocess_mamba,
    state_column,
)
from launchkit.kernels.state_copy.spec_decode import MambaSpecDecodeGPUContext
from launchkit.kernels.state_copy.staging import (
    postprocess_mamba_align_gpu,
    stage_postprocess_inputs_to_gpu,
)

FUNCS = (get_conv_copy_spec, get_temporal_copy_spec)
CACHE_CONFIG = SimpleNamespace(enable_prefix_caching=True)


class World:
    """States, columns and accepted counts as one of launchkit's paths keeps them."""

    def __init__(self, geometry, engine, device, shape=None):
        self.geometry, self.device = geometry, device
        self.states = States(geometry, device)
        self.columns, self.accepted = {}, {}
        self.args = (self.states.config, self.states.context, FUNCS)
        self.make_buffer = partial(CpuGpuBuffer, device=device)
        self.tables = [
            torch.full((engine.max_reqs + 2, engine.columns), -1, dtype=torch.int32, device=device)
            for _ in range(geometry.groups)
        ]
        self.shape = shape

    def forward(self, fill):
        fill(self.states, self.columns)

    def write_tables(self, engine, step, row_of):
        for group, table in enumerate(self.tables):
            table.fill_(-1)
            for row, req_id in enumerate(step.req_ids):
                request = engine.requests[req_id]
                blocks = request.block_ids[group + 1]
                place = row_of(row, request)
                table[place, : len(blocks)] = torch.tensor(blocks, dtype=torch.int32)

    def batch(self, engine, step):
        for req_id in step.fresh:
            self.accepted[req_id] = 1
        counts = np.full(engine.max_reqs, -7, np.int32)
        counts[: len(step.req_ids)] = [self.accepted[r] for r in step.req_ids]
        table = {
            group + 1: SimpleNamespace(get_device_tensor=lambda n, t=table: t[:n])
            for group, table in enumerate(self.tables)
        }
        return SimpleNamespace(
            req_ids=step.req_ids, num_accepted_tokens_cpu=counts, block_table=table
        )

    def read_accepted(self, step, counts):
        self.accepted.update(zip(step.req_ids, map(int, counts), strict=False))


class BatchedWorld(World):
    """Decisions on the host, copies from lists of addresses."""

    def __init__(self, geometry, engine, device, shape=None):
        super().__init__(geometry, engine, device, shape)
        buffers = MambaBuffers.create(
            engine.max_reqs, self.states.config, FUNCS, self.make_buffer, device, False
        )
        assert buffers.postprocess_align is None
        self.copies = buffers.preprocess

    def before(self, engine, step):
        batch = self.batch(engine, step)
        config, context, funcs = self.args
        preprocess_mamba(
            step.scheduler_output, config, CACHE_CONFIG, self.columns, batch, engine.requests,
            context, funcs, self.copies,
        )  # fmt: skip
        self.read_accepted(step, batch.num_accepted_tokens_cpu)

    def after(self, engine, step):
        batch = self.batch(engine, step)
        batch.num_accepted_tokens_cpu[: len(step.req_ids)] = step.accepted
        config, context, funcs = self.args
        postprocess_mamba(
            step.scheduler_output, config, batch, engine.requests, self.columns, context, funcs,
            self.copies,
        )  # fmt: skip
        self.read_accepted(step, batch.num_accepted_tokens_cpu)


class FusedWorld(World):
    """Columns on the host, copies and the decision after a step on the device, by batch row."""

    def __init__(self, geometry, engine, device, shape=None):
        super().__init__(geometry, engine, device, shape)
        self.buffers = MambaBuffers.create(
            engine.max_reqs, self.states.config, FUNCS, self.make_buffer, device, True
        )
        self.buffers.postprocess_align.shape = shape

    def before(self, engine, step):
        self.write_tables(engine, step, lambda row, request: row)
        batch = self.batch(engine, step)
        config, context, funcs = self.args
        preprocess_mamba(
            step.scheduler_output, config, CACHE_CONFIG, self.columns, batch, engine.requests,
            context, funcs, self.buffers.preprocess, self.buffers.postprocess_align,
        )  # fmt: skip
        self.read_accepted(step, batch.num_accepted_tokens_cpu)

    def after(self, engine, step):
        count = len(step.req_ids)
        stage_postprocess_inputs_to_gpu(
            self.buffers.postprocess_align, step.scheduler_output, step.req_ids, count,
            engine.requests, self.columns,
        )  # fmt: skip
        accepted = torch.tensor([*step.accepted, 99], dtype=torch.int32, device=self.device)
        read_back = torch.full((engine.max_reqs + 1,), -7, dtype=torch.int32)
        config, context, funcs = self.args
        postprocess_mamba_align_gpu(
            bufs=self.buffers, num_reqs=count, num_accepted_tokens_gpu=accepted,
            num_accepted_tokens_cpu_tensor=read_back, input_batch=self.batch(engine, step),
            kv_cache_config=config, forward_context=context, mamba_state_copy_funcs=funcs,
        )  # fmt: skip
        if self.device != "cpu":
            torch.cuda.synchronize()
        assert accepted.tolist() == [*step.accepted, 99]
        assert (read_back[count:] == -7).all()
        self.read_accepted(step, read_back)


class SlotWorld(World):
    """Everything on the device by request slot; block tables by slot, or by batch row."""

    def __init__(self, geometry, engine, device, shape=None, by_slot=True):
        super().__init__(geometry, engine, device, shape)
        self.by_slot = by_slot
        slots = engine.max_reqs + 2
        self.fused = MambaSpecDecodeGPUContext.create(
            slots, self.states.config, FUNCS, device, self.make_buffer,
            block_tables_by_slot=by_slot, shape=shape,
        )  # fmt: skip
        config, context, funcs = self.args
        self.fused.initialize_from_forward_context(config, context, funcs, self.tables)
        self.column, self.count, self.computed, self.src_col, self.src_off = (
            torch.full((slots,), -1, dtype=torch.int32, device=device) for _ in range(5)
        )
        self.count.fill_(1)

    def _mapping(self, engine, step):
        """Slots by batch row, with rows of padding."""
        slots = [engine.requests[r].slot for r in step.req_ids]
        return torch.tensor([*slots, -1], dtype=torch.int32, device=self.device)

    def before(self, engine, step):
        self.write_tables(engine, step, lambda row, r: r.slot if self.by_slot else row)
        starts = [0]
        for req_id in step.req_ids:
            request = engine.requests[req_id]
            starts.append(starts[-1] + step.scheduler_output.num_scheduled_tokens[req_id])
            self.computed[request.slot] = request.num_computed_tokens
            if req_id in step.fresh:
                first = state_column(request.num_computed_tokens, self.geometry.block_size)
                self.column[request.slot], self.count[request.slot] = first, 1
        self.mapping = self._mapping(engine, step)
        starts = torch.tensor([*starts, starts[-1]], dtype=torch.int32, device=self.device)
        rows = len(step.req_ids) + 1
        self.fused.run_fused_preprocess(
            rows, self.mapping, self.column, self.computed, starts, self.count, self.src_col,
            self.src_off,
        )  # fmt: skip
        self.fused.run_fused_precopy(rows, self.column, self.src_col, self.src_off, self.mapping)
        self._read(engine, step)

    def after(self, engine, step):
        for req_id, taken, computed in zip(
            step.req_ids, step.accepted, engine.new_computed(step), strict=True
        ):
            slot = engine.requests[req_id].slot
            self.count[slot], self.computed[slot] = taken, computed
        self.fused.run_fused_postprocess_align(
            len(step.req_ids) + 1, self.count, self.column, self.computed, self.mapping
        )
        self._read(engine, step)

    def _read(self, engine, step):
        slots = [engine.requests[r].slot for r in step.req_ids]
        self.columns = dict(zip(step.req_ids, self.column[slots].tolist(), strict=True))
        self.accepted = dict(zip(step.req_ids, self.count[slots].tolist(), strict=True))


def forward_of(engine, step):
    """A forward pass: the running conv block, and a temporal block for every token kept apart."""

    def fill(states, columns):
        rng = np.random.default_rng(step.seed)
        for req_id in step.req_ids:
            request = engine.requests[req_id]
            drafts = len(step.scheduler_output.scheduled_spec_decode_tokens.get(req_id, []))
            for group in range(1, engine.geometry.groups + 1):
                blocks = request.block_ids[group]
                states.fill(group, blocks[columns[req_id]], (0,), rng)
                for extra in range(1 + drafts):
                    states.fill(group, blocks[columns[req_id] + extra], (1,), rng)

    return fill


EVERY_KIND = {
    "before, on", "before, on, shifted", "after, back", "after, back, shifted", "after, in place",
    "after, in place, shifted",
}  # fmt: skip
"""What a schedule has to contain; states also move back before a step, but seldom."""


def check_schedule(make_world, geometry, seed, steps, device="cpu", kinds=frozenset(EVERY_KIND)):
    """Every byte, column and accepted count is the reference's before and after each forward pass.

    ``kinds``: the moves that the schedule must contain, so that it shows something.
    """
    set_conv_state_layout("DS" if geometry.dim_first else "SD")
    try:
        seen = _check_schedule(make_world, geometry, seed, steps, device)
    finally:
        set_conv_state_layout("SD")
    assert seen >= kinds, kinds - seen


def _check_schedule(make_world, geometry, seed, steps, device):
    engine = Engine(geometry, seed)
    reference, world = ReferenceWorld(geometry), make_world(geometry, engine, device)
    for _ in range(steps):
        step = engine.next_step()
        for phase in ("before", "after"):
            for each in (reference, world):
                getattr(each, phase)(engine, step)
            _compare(reference, world, step)
            if phase == "before":
                for each in (reference, world):
                    each.forward(forward_of(engine, step))
        engine.commit(step)
    return reference.kinds


def _compare(reference, world, step):
    for req_id in step.req_ids:
        assert world.columns[req_id] == reference.columns[req_id], req_id
        assert world.accepted[req_id] == reference.accepted[req_id], req_id
    wanted, got = reference.states.bytes(), world.states.bytes()
    for name in wanted:
        np.testing.assert_array_equal(got[name], wanted[name], err_msg=name)
