"""What the "align" cache mode does to states, in plain Python on bytes: the reference of a step."""

from __future__ import annotations

from mamba_states import States


class ReferenceWorld:
    """Decisions with Python integers; copies of slices, the source read before anything is written."""

    def __init__(self, geometry):
        self.geometry, self.states = geometry, States(geometry)
        self.columns, self.accepted = {}, {}
        self.kinds = set()
        """Kinds of moves seen: in which phase, where to, and whether tokens are skipped."""

    def forward(self, fill):
        fill(self.states, self.columns)

    def before(self, engine, step):
        output, size = step.scheduler_output, self.geometry.block_size
        gone = set(output.finished_req_ids) | set(output.preempted_req_ids or ())
        for req_id in gone | set(output.scheduled_cached_reqs.resumed_req_ids):
            self.columns.pop(req_id, None)
        for req_id in step.req_ids:
            request = engine.requests[req_id]
            if req_id in step.fresh:
                self.accepted[req_id] = 1
            computed = request.num_computed_tokens
            old = self.columns.get(req_id, (computed - 1) // size)
            blocks = -(-(computed + output.num_scheduled_tokens[req_id]) // size)
            new = blocks - 1
            self.columns[req_id] = new
            if old != -1 and old != new:
                self.copy("before", request, old, new, self.accepted[req_id] - 1)
                self.accepted[req_id] = 1

    def after(self, engine, step):
        output, size = step.scheduler_output, self.geometry.block_size
        for req_id, taken in zip(step.req_ids, step.accepted, strict=True):
            request = engine.requests[req_id]
            draft = len(output.scheduled_spec_decode_tokens.get(req_id, []))
            running = request.num_computed_tokens + output.num_scheduled_tokens[req_id] - draft
            boundary = (running + taken - 1) // size * size
            self.accepted[req_id] = taken
            if boundary >= running:
                source, target = self.columns[req_id], boundary // size - 1
                if source == target:
                    self.accepted[req_id] = 1
                self.copy("after", request, source, target, boundary - running)

    def copy(self, phase, request, source, target, bias):
        where = "in place" if source == target else "back" if target < source else "on"
        self.kinds.add(f"{phase}, {where}{', shifted' if bias else ''}")
        for group, described in enumerate(self.states.config.kv_cache_groups):
            if group == 0:
                continue
            blocks = request.block_ids[group]
            for name in described.layer_names:
                raw = self.states.raw[name].numpy()
                self._copy_conv(raw, blocks[source], blocks[target], bias)
                at = self.states.temporal_at
                self._move(
                    raw, blocks[source + bias], at, blocks[target], at, self.states.temporal_bytes
                )

    def _copy_conv(self, raw, source, target, bias):
        width, dim = self.geometry.width, self.geometry.dim
        kept = max(width - bias, 0)
        if not self.geometry.dim_first:
            self._move(raw, source, 2 * dim * bias, target, 0, 2 * dim * kept)
            return
        for row in range(dim):
            start = 2 * width * row
            self._move(raw, source, start + 2 * bias, target, start, 2 * kept)

    def _move(self, raw, source, source_at, target, target_at, count):
        page, first = self.states.page_bytes, self.geometry.offset
        read = raw[first + source * page + source_at :][:count].copy()
        raw[first + target * page + target_at :][:count] = read
