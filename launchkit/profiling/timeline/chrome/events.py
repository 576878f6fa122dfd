"""The events of a chrome trace, one by one, as far as its JSON can be read. A leaf."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from launchkit import jsonio
from launchkit.errors import TimelineError

TRACE_ADVICE = "Give a trace as torch.profiler or Chrome exports it."

MAX_VALUE_CHARACTERS = 64 << 20
"""Of one event, or of one member beside the events: what is longer is refused."""

_SPACE = re.compile(r"[ \t\n\r]*")
# Where the next event may begin, behind one that is no JSON.
_NEXT = re.compile(r'[,\[]\s*(?=\{\s*"(?:ph|name|cat|ts|dur|pid|tid|id)"\s*:)')
_NEXT_SPAN = 256
# A number, a literal or an escape that is cut off at the end of what was read.
_LONGEST_TOKEN = 16


class TraceEvents:
    """One walk over a trace: a list of events, or an object with a list ``traceEvents``.

    ``members`` are the other members of the object. ``malformed`` counts events that are no JSON
    and were skipped. ``truncated`` tells whether the file ends within its JSON, ``more`` whether
    something stands behind it, ``bare`` whether it is the list alone. Memory is bounded by the
    longest event. Raises TimelineError for what is no trace.
    """

    def __init__(self, path: str, pieces: Iterator[str]) -> None:
        self.members: dict[str, Any] = {}
        self.malformed = 0
        self.truncated = False
        self.more = False
        self.bare = False
        self._path = path
        self._pieces = pieces
        self._decode = jsonio.tolerant_decoder()
        self._text = ""
        self._at = 0
        self._ended = False

    def __iter__(self) -> Iterator[Any]:
        start = self._peek()
        if start == "[":
            self.bare = True
            # Chrome itself leaves the last bracket out.
            yield from self._elements(closing_needed=False)
        elif start == "{":
            yield from self._of_object()
        else:
            raise TimelineError(self._path, "it is not JSON", TRACE_ADVICE)
        self.more = bool(self._peek())
        # To its end, since the pieces say what is wrong with the file when they end.
        for _ in self._pieces:
            pass

    def _of_object(self) -> Iterator[Any]:
        found = False
        self._at += 1
        while (following := self._peek()) != "}":
            if following == ",":
                self._at += 1
                continue
            name = self._member_name()
            if name is None:
                self.truncated = True
                break
            if name == "traceEvents" and self._peek() == "[":
                found = True
                yield from self._elements(closing_needed=True)
            elif not self._take_member(name):
                break
        self._at += following == "}"
        if not found:
            reason = "it is JSON, but has no list traceEvents"
            raise TimelineError(self._path, reason, TRACE_ADVICE)

    def _member_name(self) -> str | None:
        try:
            name = self._value()
        except (ValueError, ArithmeticError, RecursionError):
            return None
        if not isinstance(name, str) or self._peek() != ":":
            return None
        self._at += 1
        return name

    def _take_member(self, name: str) -> bool:
        try:
            self._peek()
            self.members[name] = self._value()
        except (ValueError, ArithmeticError, RecursionError):
            self.truncated = True
            return False
        return True

    def _elements(self, closing_needed: bool) -> Iterator[Any]:
        self._at += 1
        while (following := self._peek()) != "]":
            if following == ",":
                self._at += 1
                continue
            if not following:
                self.truncated |= closing_needed
                return
            try:
                event = self._value()
            except (ValueError, ArithmeticError, RecursionError):
                self.malformed += 1
                if not self._skip_to_next():
                    self.truncated = True
                    return
                continue
            yield event
        self._at += 1

    def _skip_to_next(self) -> bool:
        self._at += 1
        while True:
            found = _NEXT.search(self._text, self._at)
            if found:
                self._at = found.end()
                return True
            self._at = max(self._at, len(self._text) - _NEXT_SPAN)
            if not self._more():
                self._at = len(self._text)
                return False

    def _value(self) -> Any:
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except ValueError as error:
                if not (self._is_cut_off(error) and self._more()):
                    raise
                continue
            # A number may go on in the next piece.
            if end == len(self._text) and not isinstance(value, (dict, list, str)) and self._more():
                continue
            self._at = end
            return value

    def _is_cut_off(self, error: ValueError) -> bool:
        place = getattr(error, "pos", None)
        if place is None:
            return False
        near_the_end: bool = place >= len(self._text) - _LONGEST_TOKEN
        return near_the_end or str(error).startswith("Unterminated string")

    def _peek(self) -> str:
        while True:
            self._at = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def _more(self) -> bool:
        """Read on, at least as much again as is pending; False at the end of the file."""
        rest = self._text[self._at :]
        if len(rest) > MAX_VALUE_CHARACTERS:
            reason = f"one of its values has more than {MAX_VALUE_CHARACTERS} characters"
            raise TimelineError(self._path, reason, "Capture it again.")
        taken, length = [rest], 0
        while length <= len(rest) and not self._ended:
            piece = next(self._pieces, None)
            self._ended = piece is None
            taken.append(piece or "")
            length += len(piece or "")
        self._text, self._at = "".join(taken), 0
        return length > 0
