"""From a template to an answer: times and numbers for people, headers. Of the service's page."""

from __future__ import annotations

import functools
import hashlib
import importlib.resources
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import jinja2
from fastapi.responses import HTMLResponse

from launchkit.service.db import utc_text

if TYPE_CHECKING:
    from launchkit.service.web.session import Visitor

_HERE = "launchkit.service.web"
MEDIA = {"page.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8"}
"""The files that pages load, and what they are."""

# Nothing but this server's own files: what a record holds can run nothing, whatever it is.
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; "
    "img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
_AGO = (("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1))


def page(template: str, visitor: Visitor | None, status: int = 200, **values: Any) -> HTMLResponse:
    """Return an answer of a template; every value in it is escaped."""
    text = environment().get_template(template).render(visitor=visitor, **values)
    return HTMLResponse(text, status, dict(_HEADERS))


@functools.cache
def environment() -> jinja2.Environment:
    """Return the templates; a name that is not given is an error, not an empty place."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader(_HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        us=time_text, ago=ago_text, utc=utc_text, seconds=seconds_text, size=size_text,
        segment=lambda text: quote(text, safe=""),
    )  # fmt: skip
    made.globals.update(query=query, asset=asset)
    return made


@functools.cache
def static(name: str) -> tuple[bytes, str]:
    """Return a file that pages load, and its digest. Raises KeyError for any other."""
    if name not in MEDIA:
        raise KeyError(name)
    data = (importlib.resources.files(_HERE) / "static" / name).read_bytes()
    return data, hashlib.sha256(data).hexdigest()[:16]


def asset(name: str) -> str:
    """Return the URL of a file that pages load; other content has another one."""
    return f"/assets/{static(name)[1]}/{name}"


def query(**values: str | int) -> str:
    """Return ``?name=value…`` of what is not empty."""
    given = {name: value for name, value in values.items() if value not in ("", 0)}
    return f"?{urlencode(given)}" if given else ""


def time_text(time_us: float | None) -> str:
    """Return a time of a kernel: three figures or more, with its unit."""
    if time_us is None:
        return "-"
    if time_us >= 1e6:
        return f"{_figures(time_us / 1e6)} s"
    return f"{_figures(time_us / 1e3)} ms" if time_us >= 1000 else f"{_figures(time_us)} µs"


def _figures(value: float) -> str:
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"


def ago_text(then_ms: int, now_ms: int) -> str:
    """Return how long ago something was, or in how long it will be."""
    text = seconds_text(abs(now_ms - then_ms) / 1000)
    return f"{text} ago" if then_ms <= now_ms else f"in {text}"


def seconds_text(seconds: float) -> str:
    """Return a duration in its largest unit."""
    for unit, size in _AGO:
        count = int(seconds / size)
        if count >= 1:
            return f"{count:,} {unit}{'' if count == 1 else 's'}"
    return "0 seconds"


def size_text(size_bytes: int) -> str:
    """Return a number of bytes for people."""
    if size_bytes < 1024:
        return f"{size_bytes} bytes"
    if size_bytes < 2**20:
        return f"{size_bytes / 1024:.1f} KiB"
    return f"{size_bytes / 2**20:.1f} MiB"
