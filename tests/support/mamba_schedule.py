"""A serving engine's steps, simulated: prefill, decode with drafts, preemption, resumption, end."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from types import SimpleNamespace


@dataclass
class SimRequest:
    """A request as a worker knows it."""

    req_id: str
    prompt: int
    length: int
    slot: int = -1
    num_computed_tokens: int = 0
    block_ids: list[list[int]] = field(default_factory=list)


@dataclass
class Step:
    """What one step is given, and how many tokens each row will accept."""

    scheduler_output: SimpleNamespace
    req_ids: list[str]
    fresh: set[str]
    """Requests that are new or resumed."""
    accepted: list[int]
    seed: int


class Engine:
    """Random steps over a pool of blocks; ``commit`` advances the requests after each."""

    def __init__(self, geometry, seed, max_reqs=3, columns=9):
        self.geometry, self.rng = geometry, random.Random(seed)
        self.max_reqs, self.columns = max_reqs, columns
        ids = range(1, geometry.num_blocks)
        # Not from self.rng: the schedule of a seed is the same for any number of groups.
        pools = [random.Random(seed * 100 + group) for group in range(geometry.groups)]
        self.free = [pool.sample(ids, len(ids)) for pool in pools]
        self.slots = list(range(max_reqs + 2))
        self.rng.shuffle(self.slots)
        self.running, self.waiting, self.requests, self.made = [], [], {}, 0
        self.finished = set()

    def _admit(self, request):
        """Give a request a slot, and blocks for the prefix that the cache is said to hold."""
        hit = self.rng.choice([0, 0, 1, 2]) * self.geometry.block_size
        request.num_computed_tokens = min(
            hit, (request.prompt - 1) // self.geometry.block_size * self.geometry.block_size
        )
        request.slot = self.slots.pop()
        request.block_ids = [[], *([] for _ in self.free)]
        self.running.append(request.req_id)

    def _release(self, req_id):
        request = self.requests[req_id]
        for pool, blocks in zip(self.free, request.block_ids[1:], strict=True):
            pool[:0] = blocks
        self.slots.insert(0, request.slot)
        self.running.remove(req_id)

    def _grow(self, request, tokens):
        size = self.geometry.block_size
        wanted = -(-tokens // size) + self.geometry.num_spec
        for pool, blocks in zip(self.free, request.block_ids[1:], strict=True):
            while len(blocks) < wanted:
                blocks.append(pool.pop())

    def _new_request(self):
        self.made += 1
        most = (self.columns - self.geometry.num_spec) * self.geometry.block_size
        prompt = self.rng.randint(1, most // 2)
        length = self.rng.randint(prompt + 1, most - self.geometry.num_spec - 1)
        return SimRequest(f"r{self.made}", prompt, length)

    def next_step(self):
        """Decide a step: who leaves, who comes, and how many tokens each is given."""
        preempted, resumed, fresh = set(), set(), set()
        if self.running and self.rng.random() < 0.2:
            victim = self.rng.choice(self.running)
            self._release(victim)
            self.waiting.append(victim)
            # A reset of the cache preempts without saying so: only the resumption is seen.
            if self.rng.random() < 0.5:
                preempted.add(victim)
        elif self.waiting and len(self.running) < self.max_reqs and self.rng.random() < 0.6:
            request = self.requests[self.waiting.pop()]
            self._admit(request)
            resumed.add(request.req_id)
            fresh.add(request.req_id)
        while len(self.running) < self.max_reqs and self.rng.random() < 0.7:
            request = self._new_request()
            self.requests[request.req_id] = request
            self._admit(request)
            fresh.add(request.req_id)
        return self._scheduled(preempted, resumed, fresh)

    def _scheduled(self, preempted, resumed, fresh):
        tokens, drafts, accepted = {}, {}, []
        req_ids = self.rng.sample(self.running, len(self.running))
        for req_id in req_ids:
            request = self.requests[req_id]
            left = request.prompt - request.num_computed_tokens
            count, taken = self.rng.randint(1, max(left, 1)), 1
            if left <= 1:
                drafts[req_id] = [0] * self.rng.randint(0, self.geometry.num_spec)
                count = 1 + len(drafts[req_id])
                taken = self.rng.randint(1, count)
            tokens[req_id] = count
            accepted.append(taken)
            self._grow(request, request.num_computed_tokens + count)
        output = SimpleNamespace(
            num_scheduled_tokens=tokens,
            scheduled_spec_decode_tokens={k: v for k, v in drafts.items() if v},
            finished_req_ids=self.finished,
            preempted_req_ids=preempted or None,
            scheduled_cached_reqs=SimpleNamespace(resumed_req_ids=resumed),
        )
        self.finished = set()
        return Step(output, req_ids, fresh, accepted, self.rng.randrange(2**32))

    def new_computed(self, step):
        """Computed tokens after a step, by row."""
        drafts = step.scheduler_output.scheduled_spec_decode_tokens
        return [
            self.requests[r].num_computed_tokens
            + step.scheduler_output.num_scheduled_tokens[r]
            - len(drafts.get(r, []))
            + taken
            - 1
            for r, taken in zip(step.req_ids, step.accepted, strict=True)
        ]

    def commit(self, step):
        """Advance every request; those at their length end."""
        for req_id, computed in zip(step.req_ids, self.new_computed(step), strict=True):
            self.requests[req_id].num_computed_tokens = computed
            if computed >= self.requests[req_id].length:
                self._release(req_id)
                self.finished.add(req_id)
