"""Which extra brings a package that a command did without until it needed it. Of the tools."""

from __future__ import annotations

from launchkit.errors import MissingExtraError

_PACKAGES = {
    "torch": ("torch", "triton", "numpy"),
    "bench": ("einops",),
    "profile": ("polars", "plotly"),
    "service": (
        "alembic", "fastapi", "httpcore", "httpx", "jinja2", "prometheus_client", "psycopg",
        "sqlalchemy", "starlette", "uvicorn",
    ),
}  # fmt: skip
_EXTRAS = {package: extra for extra, packages in _PACKAGES.items() for package in packages}


def missing(error: ModuleNotFoundError) -> MissingExtraError | None:
    """Return what to say where a package of an extra is not installed; None: it is of none."""
    package = (error.name or "").partition(".")[0]
    extra = _EXTRAS.get(package)
    return None if extra is None else MissingExtraError(extra, package)
