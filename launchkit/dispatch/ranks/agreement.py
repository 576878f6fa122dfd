"""``agree_across_ranks``: the ranks of a distributed job launch with the same configs. On top of dispatch.

reports.py says what a rank knows, store/agreeing.py what follows from all
reports, board.py carries them, store.py gives a missing key one owner. torch.distributed
is imported when it is called.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import TracebackType
from typing import Any

from launchkit import jsonio
from launchkit.dispatch import stores
from launchkit.dispatch.launch_path import Launcher
from launchkit.dispatch.launcher import adopt, all_launchers
from launchkit.dispatch.manifest.document import Entry, entry_text, read_manifest
from launchkit.dispatch.manifest.replaying import CannotReplay, MakeArguments
from launchkit.dispatch.manifest.tuning_worker import tune_entry
from launchkit.dispatch.ranks.board import Board
from launchkit.dispatch.ranks.store import RankStore
from launchkit.dispatch.ranks.uniting import Round, UnlikeConfigs, unite
from launchkit.dispatch.ranks.world import World, world_of
from launchkit.errors import (
    AgreementError,
    NotAutotunedError,
    UnfingerprintableError,
    UsageError,
)
from launchkit.keys import KernelId


def agree_across_ranks(
    kernels: Iterable[Any] | None = None,
    *,
    group: Any = None,
    timeout_s: float = 600.0,
    silent_s: float = 30.0,
    unlike_configs: UnlikeConfigs = "common",
) -> Agreement:
    """Let all ranks of a job launch with the same tuned configs, and tune each key only once.

    Every rank of the group calls it, as often as the others. At once, what any rank knows (from
    its store and from its launches so far) is known to all that launch such a kernel on such a
    device, and stored there; where they differ, pinned choices go first, then those of the lowest
    rank. With the result as a context manager, keys that are missing are tuned once: the first rank
    that needs one tunes it at its launch, and the others take its record; a rank that does not
    launch the kernel is not waited for. On leaving the block the ranks agree again.

    Nothing here is a collective operation of the group's backend: all goes through its key-value
    store, with a limit on every wait. Without torch.distributed, and in a world of one, it returns
    at once.

    Args:
        kernels: autotuned kernels to agree on; None is every kernel and every stored record. Ranks
            may name unlike kernels.
        group: a process group that this rank is in; None is the whole world.
        timeout_s: how long to wait for other ranks: for all of them to call, and, in the block, for
            one that tunes; a launch that has waited so long tunes by itself.
        silent_s: a rank that has called and then shows no sign of life for so long counts as dead;
            longer than anything that may stop a whole process.
        unlike_configs: what to do where ranks have unlike config lists for one kernel: take the best
            config that all have in common, or raise an error.

    Raises:
        UsageError: a bad argument, or this rank is not in the group.
        NotAutotunedError: a kernel has no configs.
        AgreementError: ranks died or did not call in time (``silent`` names them), or there is no
            config that all have (``conflicts``). Launches go on with what each rank has.
    """
    if unlike_configs not in ("common", "error"):
        raise UsageError(f"unlike_configs={unlike_configs!r}. Give 'common' or 'error'.")
    for name, seconds in (("timeout_s", timeout_s), ("silent_s", silent_s)):
        if not (math.isfinite(seconds) and seconds > 0):
            raise UsageError(f"{name}={seconds!r} is no time to wait. Give a positive number.")
    launchers = None if kernels is None else [_autotuned(kernel) for kernel in kernels]
    agreement = Agreement(launchers, world_of(group), timeout_s, silent_s, unlike_configs)
    agreement._agree()
    return agreement


class Agreement:
    """What ranks have agreed on, and a context manager in which missing keys are tuned once.

    ``digest``: stands for the config of every key that ranks use; the same on all ranks.
    ``keys``: how many those are. ``changed``: keys for which this process had chosen another
    config. ``counts``: keys ``owned`` (tuned here), ``received`` from other ranks, ``taken-over``
    from ranks that died, and waits that ended ``late`` or with the store ``lost``.
    """

    def __init__(
        self,
        launchers: list[Launcher] | None,
        world: World | None,
        timeout_s: float,
        silent_s: float,
        unlike_configs: UnlikeConfigs,
    ) -> None:
        self.digest = ""
        self.keys = 0
        self.changed = 0
        self._launchers = launchers
        self._world = world
        self._timeout_s = timeout_s
        self._silent_s = silent_s
        self._unlike_configs = unlike_configs
        self._kernels = None if launchers is None else set(_kernel_ids(launchers))
        self._store = RankStore(_inner_store(), self._covers)
        self._board: Board | None = None
        self._inside = False

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that agree; of a world of one, rank 0."""
        return (0,) if self._world is None else self._world.ranks

    @property
    def counts(self) -> Mapping[str, int]:
        """What became of the keys that were missing in the block."""
        return Counter(self._store.counters)

    def __repr__(self) -> str:
        return f"<Agreement of {len(self.ranks)} ranks on {self.keys} keys, {self.digest[:12]}>"

    def __enter__(self) -> Agreement:
        """From here on a missing key has one owner among the ranks. Waits for nobody."""
        if self._inside:
            raise UsageError("this agreement is in use. Call agree_across_ranks for another one.")
        self._inside = True
        if _inner_store() is not self._store.inner:  # another store is in use by now
            self._store = RankStore(_inner_store(), self._covers)
        stores.exchange_store(self._store)
        self._board = self._open()
        if self._board is not None:
            self._store.open_claims(self._board, self._timeout_s)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Agree again; after an error, tell the others that there will be no agreement."""
        board, self._board, self._inside = self._board, None, False
        self._store.close_claims()
        with _closing(board):
            if kind is not None:
                _give_up(board, kind)
                return
            self._unite(board, last=True)

    def spread(self, calls: Mapping[str, Callable[[], object]]) -> None:
        """In the block: run every call, so that the ranks tune different keys at the same time.

        The calls launch kernels, say on scratch tensors, and must not need each other or other
        ranks. Ranks give the same calls the same names, and need not give all of them. Each rank
        begins with its own share, by a hash of the names, and then finds the keys of the others'
        tuned, or tunes what nobody has. A call that raises is tried again at the end.

        Raises:
            UsageError: outside of the block.
            Exception: what a call raised when it was tried again.
        """
        for error in self._spread(calls).values():
            raise error

    def tune(
        self, manifest: str | os.PathLike[str], *, make: MakeArguments | None = None
    ) -> dict[str, str]:
        """In the block: tune what a manifest lists, each rank its share, on scratch tensors.

        ``manifest`` is a file of ``record_manifest``; one that all ranks can read. ``make`` is given
        a kernel's name and its arguments by parameter, may fill tensors in place, and returns those
        that are to be replaced. Returns why entries failed, by their text.

        Raises:
            UsageError: outside of the block.
            MissingManifestError: there is no such file.
            BadDocumentError: it is no manifest.
            OSError: it cannot be read.
        """
        entries = {jsonio.digest(each): each for each in read_manifest(manifest).entries}
        failed = self._spread({n: partial(_tune_entry, e, make) for n, e in entries.items()})
        return {entry_text(entries[name]): str(error) for name, error in failed.items()}

    def _spread(self, calls: Mapping[str, Callable[[], object]]) -> dict[str, Exception]:
        """Run calls, one that raises once more at the end; return what then still fails."""
        if not self._inside:
            raise UsageError("keys are tuned in the block. Write: with agree_across_ranks() as a:")
        # Another rank may have what a failed one lacks, such as memory.
        first = {name: error for name in self._turns(calls) if (error := _error_of(calls[name]))}
        return {name: error for name in first if (error := _error_of(calls[name]))}

    def _turns(self, names: Iterable[str]) -> list[str]:
        """Return the names by their hashes: first every n-th for this rank, then the next rank's."""
        count, mine = len(self.ranks), 0 if self._world is None else self._world.place
        hashed = sorted(names, key=lambda name: hashlib.sha256(ascii(name).encode()).digest())
        return [each for turn in range(count) for each in hashed[(mine + turn) % count :: count]]

    def _agree(self) -> None:
        board = self._open()
        with _closing(board):
            self._unite(board, last=False)

    def _open(self) -> Board | None:
        world = self._world
        if world is None:
            return None
        try:
            number = world.store.add(f"launchkit/calls/{world.rank}", 1)
        except RuntimeError as error:
            raise AgreementError(f"the store of torch.distributed is lost ({error})") from error
        name = f"launchkit/{number}"
        return Board(world.store, name, world.rank, world.ranks, silent_s=self._silent_s)

    def _unite(self, board: Board | None, *, last: bool) -> None:
        everything = self._launchers is None
        launchers = all_launchers() if self._launchers is None else self._launchers
        united = unite(
            Round(
                board, self._store, launchers, everything, self._timeout_s, self._unlike_configs,
                last,
            )
        )  # fmt: skip
        self.digest, self.keys = united.digest, united.keys
        self.changed += united.changed
        if self._store.agreed.has_records:
            stores.exchange_store(self._store)

    def _covers(self, kernel: KernelId) -> bool:
        return self._kernels is None or kernel in self._kernels


@contextlib.contextmanager
def _closing(board: Board | None) -> Iterator[None]:
    """Tell the others if it comes to nothing here."""
    try:
        yield
    except BaseException as error:
        _give_up(board, type(error))
        raise
    finally:
        if board is not None:
            board.close()


def _error_of(call: Callable[[], object]) -> Exception | None:
    try:
        call()
    except Exception as error:  # noqa: BLE001 - of the kernel, the compiler, the driver
        return error
    return None


def _tune_entry(entry: Entry, make: MakeArguments | None) -> None:
    status, reason = tune_entry(entry, make)
    if status == "failed":
        raise CannotReplay(reason)


def _give_up(board: Board | None, kind: type[BaseException]) -> None:
    if board is not None:
        with contextlib.suppress(AgreementError):
            board.give_up(f"rank {board.rank} stopped with {kind.__name__}")


def _autotuned(kernel: Any) -> Launcher:
    launcher = adopt(kernel)
    if not launcher.autotuned:
        raise NotAutotunedError(launcher.name)
    return launcher


def _kernel_ids(launchers: Iterable[Launcher]) -> Iterator[KernelId]:
    for launcher in launchers:
        if launcher.chooser is not None:
            with contextlib.suppress(UnfingerprintableError):
                yield launcher.chooser.identities()[0]


def _inner_store() -> Any:
    """Return the store in use, without what ranks agreed on before."""
    store = stores.active_store()
    return store.inner if isinstance(store, RankStore) else store
