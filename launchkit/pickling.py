"""Exceptions that arrive whole from another process. A leaf: imports nothing from the package."""

from __future__ import annotations

from typing import Any


def rebuild(cls: type[Exception], args: tuple[Any, ...], attributes: dict[str, Any]) -> Exception:
    """Return an exception with these arguments and attributes, as ``__reduce__`` names them.

    Past ``__init__``, whose parameters are each class's own: the message is worded already.
    """
    error = cls.__new__(cls, *args)
    error.args = args  # which an OSError leaves to __init__
    error.__dict__.update(attributes)
    return error


def portable(value: Any) -> Any:
    """Return ``value``, or its repr where another process could not read it."""
    if type(value) is dict:
        return {portable(key): portable(item) for key, item in value.items()}
    import pickle  # an import of launchkit does without it

    try:
        pickle.loads(pickle.dumps(value))
    except Exception:  # noqa: BLE001 - whatever a user's object raises
        return _text(value)
    return value


def _text(value: Any) -> str:
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - whatever a user's object raises
        return object.__repr__(value)
