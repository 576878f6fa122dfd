"""A watch of the C core tells every change of a dictionary, however Python makes it."""

from __future__ import annotations

import gc
import random

import pytest

from launchkit.dispatch.native import extension, premises

pytestmark = pytest.mark.usefixtures("c_core")

WATCHED = 5


class Thing:
    of_class = 1

    def __init__(self):
        self.a, self.b, self.c = 1, "x", None


def store_a(thing, value):
    thing.a = value  # Python specializes this once it has run often


def store_b(thing, value):
    thing.b = value


def store_global(value):
    global WATCHED
    WATCHED = value


def drop_global():
    global WATCHED
    if "WATCHED" in globals():
        del WATCHED


def as_expected(watches):
    """What a watch promises, read anew."""
    return all(
        found.get(name, premises.ABSENT) is value
        for found, expected, *_ in watches
        for name, value in expected.items()
    )


def changes(rng, thing, plain, watches):
    """Ways to change what is watched, and to change it back."""
    attributes, expected = vars(thing), watches[0][1]
    first = expected["a"]
    return [
        lambda: store_a(thing, rng.choice((first, 2, 3))),
        lambda: store_b(thing, rng.choice((expected["b"], 2))),
        lambda: [store_a(thing, first) for _ in range(5)],
        lambda: setattr(thing, "later", 1),
        lambda: attributes.pop("later", None),
        lambda: delattr(thing, "a") if "a" in attributes else store_a(thing, first),
        lambda: attributes.update(a=first, b=expected["b"]),
        attributes.clear,
        lambda: object.__setattr__(thing, "a", rng.choice((first, 5))),
        lambda: plain.__setitem__("k", rng.choice((watches[1][1]["k"], 9))),
        lambda: plain.setdefault("q", 1),
        lambda: plain.pop("q", None),
        lambda: plain.__ior__({"z": 1}),
        lambda: plain.popitem() if plain else None,
        lambda: plain.update(k=watches[1][1]["k"]),
        lambda: store_global(rng.choice((watches[2][1]["WATCHED"], 7))),
        drop_global,
        lambda: gc.collect() if rng.random() < 0.02 else None,
    ]


def restore(thing, plain, watches):
    store_a(thing, watches[0][1]["a"])
    store_b(thing, watches[0][1]["b"])
    vars(thing).pop("later", None)
    plain.pop("q", None)
    plain["k"] = watches[1][1]["k"]
    store_global(watches[2][1]["WATCHED"])


@pytest.mark.parametrize("seed", range(5))
def test_every_way_to_change_a_dictionary_is_seen(seed):
    rng = random.Random(seed)
    other = Thing()
    for turn in range(60):
        thing, plain = Thing(), {"k": 1, 3: 4}
        for value in range(40):
            store_a(other, value)
            store_b(Thing(), value)
            store_global(5)
        if rng.random() < 0.5:
            store_a(thing, turn)
        attributes = vars(thing)
        watches = (
            (attributes, {"a": thing.a, "b": thing.b, "later": premises.ABSENT}, None, False, 0),
            (plain, {"k": 1, "q": premises.ABSENT}, None, False, 0),
            (globals(), {"WATCHED": 5}, None, False, 0),
        )
        watch = extension.active().WatchSet(watches, ())
        for _ in range(60):
            rng.choice(changes(rng, thing, plain, watches))()
            assert watch.hold() == as_expected(watches)
            if rng.random() < 0.3:
                restore(thing, plain, watches)
                assert watch.hold() == as_expected(watches) == True  # noqa: E712
        store_global(5)


def test_change_of_a_class_ends_a_watch_over_what_its_instance_lacks():
    class Kind:
        flag = False

    thing = Kind()
    watch = extension.active().WatchSet((premises.attributes(thing, ["flag"]),), ())
    assert watch.hold()
    assert watch.hold()
    Kind.flag = True
    assert not watch.hold()
    assert not watch.hold()


def test_dropped_watch_leaves_the_dictionary_alone():
    plain = {"k": 1}
    watch = extension.active().WatchSet(((plain, {"k": 1}, None, False, 0),), ())
    assert watch.hold()
    del watch
    gc.collect()
    plain["k"] = 2
    again = extension.active().WatchSet(((plain, {"k": 2}, None, False, 0),), ())
    assert again.hold()
    plain["k"] = 3
    assert not again.hold()
