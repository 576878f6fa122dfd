"""What keeps a launch's arguments as they were while configs are tried. Below trials.py.

Three ways (``@autotuned(protect=...)``): ``auto`` copies what a kernel changes and restores it
after each config; ``copies`` tries the configs on clones; ``none`` leaves all to the kernel's
``restore_value`` and ``reset_to_zero``, which hold in every way, as in Triton.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch

from launchkit.dispatch.question import Arguments
from launchkit.dispatch.tuning import buffers
from launchkit.dispatch.tuning.accesses import Accesses
from launchkit.dispatch.tuning.failures import BrokenContextError, is_out_of_memory
from launchkit.dispatch.tuning.options import Protect

if TYPE_CHECKING:
    from typing_extensions import Self

logger = logging.getLogger("launchkit")

POISON = 0xFF
"""What memory is filled with that a kernel only writes, before outputs are compared: NaN as
floats, -1 as ints."""


class Protection:
    """Protects the arguments of one launch while its kernel is tuned; used as a context manager.

    ``arguments`` are those to launch with. Whoever launches says before the first launch of each
    config what the kernel does (``before``), and calls ``restore`` after the last.
    """

    def __init__(self, kernel: str, way: Protect, arguments: Arguments) -> None:
        self._kernel = kernel
        self._way = way
        self._saved: list[buffers.SavedRange] = []
        self._clones: buffers.Clones | None = None
        self._told = False
        self.arguments = arguments
        if way == "copies":
            self._clone(arguments)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Without an error each config's trial has ended with it; on a broken GPU nothing can.
        if error is not None and not isinstance(error, BrokenContextError):
            self.restore()
        self._saved, self._clones = [], None

    @property
    def asks(self) -> bool:
        """Whether it needs to know what a kernel reads and writes."""
        return self._way == "auto"

    def _clone(self, arguments: Arguments) -> None:
        args, kwargs = arguments
        tensors = [t for value in (*args, *kwargs.values()) for t in buffers.tensors_in(value)]
        try:
            clones = buffers.Clones(tensors)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            logger.info("%s: clones do not fit into memory; its arguments are copied", self._kernel)
            self._save(tensors)
            return
        clones.refill()
        self._clones = clones
        self.arguments = (
            tuple(clones.of(value) for value in args),
            {name: clones.of(value) for name, value in kwargs.items()},
        )

    def before(
        self,
        named: Mapping[str, Any],
        does: Accesses | None,
        restored: Iterable[str],
        *,
        all_written: bool,
    ) -> None:
        """Copy what a config's launches change and nothing restores, unless that is done already.

        Args:
            named: the launch's arguments by name.
            does: what the kernel reads and writes; None where that is not known.
            restored: names whose values are restored or zeroed for each launch.
            all_written: also copy what is only written, which is otherwise written again.

        Raises:
            ProtectionError: a copy fits into no memory.
        """
        if self._way != "auto":
            return
        if does is None:
            self._save([t for value in named.values() for t in buffers.tensors_in(value)])
            return
        self._tell(does)
        names = does.written if all_written else _changed(named, does)
        kept = set() if all_written else set(restored)
        found = buffers.named_tensors(named, [name for name in names if name not in kept])
        self._save([tensor for tensors in found.values() for tensor in tensors])

    def _save(self, tensors: Iterable[torch.Tensor]) -> None:
        ranges = [r for r in map(buffers.range_of, tensors) if r is not None]
        saved = [each.range for each in self._saved]
        for each in buffers.merged(ranges):
            if not any(old.covers(each) for old in saved):
                self._saved.append(buffers.save(self._kernel, each))

    def restore(self) -> None:
        """Give the arguments what they held before tuning."""
        if self._clones is not None:
            self._clones.refill()
        for saved in self._saved:
            saved.restore()

    def _tell(self, does: Accesses) -> None:
        if does.indirect and not self._told:
            self._told = True
            logger.info(
                "%s writes through addresses that it loads; tuning cannot protect what is there",
                self._kernel,
            )


def _changed(named: Mapping[str, Any], does: Accesses) -> list[str]:
    """Return the arguments whose launch depends on what an earlier launch left in them.

    Those that are written and read, or written where they share memory with one that is read.
    """
    read = buffers.named_tensors(named, does.read)
    ranges = [r for tensors in read.values() for r in map(buffers.range_of, tensors) if r]
    found = []
    for name, tensors in buffers.named_tensors(named, does.written).items():
        mine = [r for r in map(buffers.range_of, tensors) if r]
        if name in does.read or any(one.overlaps(other) for one in mine for other in ranges):
            found.append(name)
    return found


def poison(named: Mapping[str, Any], does: Accesses) -> None:
    """Fill the memory of what the kernel only writes, so that what it leaves out shows."""
    kept = set(_changed(named, does))
    only = buffers.named_tensors(named, [name for name in does.written if name not in kept])
    for each in (r for tensors in only.values() for r in map(buffers.range_of, tensors) if r):
        each.bytes.fill_(POISON)
