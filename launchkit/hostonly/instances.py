"""Every living instance of some classes, without a walk over the whole heap each time. A leaf."""

from __future__ import annotations

import gc
import itertools
import weakref
from typing import Any


class Instances:
    """The living instances of ``classes`` and of their subclasses.

    Those that are there already are found by one walk over the garbage collector's objects
    (some 0.1 s in a large process); from then on each class's ``__new__`` notes the later ones,
    copies and unpickled ones among them. It stays in place as long as the process runs: kernels
    that are made between two activations have to be known to the second.
    """

    def __init__(self, *classes: type) -> None:
        self._serial = itertools.count()
        self._known: dict[int, weakref.ref[Any]] = {}
        for each in classes:
            _note_new(each, self._note)
        # type(), not isinstance(): a proxy's __class__ may do anything.
        for found in gc.get_objects():
            if issubclass(type(found), classes):
                self._note(found)

    def alive(self) -> list[Any]:
        """Return them; one that was made during the walk over the heap may stand there twice."""
        # list() of a dictionary is one step, so that other threads may make kernels meanwhile.
        found = (known() for known in list(self._known.values()))
        return [instance for instance in found if instance is not None]

    def _note(self, instance: Any) -> None:
        # By a number, not in a set of references: these would ask a kernel for its hash.
        number = next(self._serial)
        self._known[number] = weakref.ref(instance, lambda _: self._known.pop(number, None))


def _note_new(owner: type, note: Any) -> None:
    def make(cls: type, *_: Any, **__: Any) -> Any:
        instance: Any = object.__new__(cls)
        note(instance)
        return instance

    owner.__new__ = staticmethod(make)  # type: ignore[method-assign, assignment]
