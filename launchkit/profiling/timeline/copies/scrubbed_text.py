"""Text without paths, addresses, hosts and users. A leaf.

Names of ranges, threads and kernels are what a capture is shared for, so they stay; what they hold
of the machine goes. Of a path stays its last part.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_URL = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>]+")
_ADDRESS = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?(?![\w.])")
_MAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)*")
_PART = r"[^\s/\\:*?\"<>|(),;=']+"
_DIRECTORIES = re.compile(
    rf"(?<![\w.)\]>])(?:~\w*|[A-Za-z]:)?[/\\]{{1,2}}(?:{_PART}[/\\]+)+(?={_PART})"
)
_WHOLE_PATH = re.compile(r"(?:~\w*|[A-Za-z]:)?[/\\].*[/\\](?P<last>[^/\\]+)", re.DOTALL)
_WORDS_OF_EVERYBODY = frozenset({"root", "user", "localhost", "host", "none", "unknown"})


class Cleaner:
    """Cleans text: ``words`` are names of hosts and users that were found in the capture."""

    def __init__(self, words: Iterable[str] = ()) -> None:
        secret = {word for word in map(str.strip, words) if len(word) > 1}
        secret = {word for word in secret if word.lower() not in _WORDS_OF_EVERYBODY}
        choices = "|".join(re.escape(word) for word in sorted(secret, key=len, reverse=True))
        self._words = re.compile(rf"(?<!\w)(?:{choices})(?!\w)", re.IGNORECASE) if secret else None

    def clean(self, text: str) -> str:
        """Return text without URLs, addresses, directories, and the known hosts and users."""
        text = without_paths(text)
        text = _ADDRESS.sub("(address)", _MAIL.sub("(address)", text))
        return self._words.sub("(hidden)", text) if self._words else text


def without_paths(text: str) -> str:
    """Return text in which a URL is ``(url)`` and an absolute path its last part only."""
    text = _URL.sub("(url)", text)
    whole = _WHOLE_PATH.fullmatch(text)
    return whole["last"] if whole else _DIRECTORIES.sub("", text)


def file_name(text: str) -> str:
    """Return the last part of what may be a path, relative ones included."""
    return re.split(r"[/\\]", text.rstrip("/\\"))[-1]
