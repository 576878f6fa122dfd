"""``launchkit serve``: the config service. Of the tools; FastAPI is imported when it is used."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Annotated

import typer

from launchkit import jsonio, settings
from launchkit.errors import UsageError
from launchkit.tools.output import AsJson

if TYPE_CHECKING:
    from launchkit.service.context import Service
    from launchkit.service.options import ServiceSettings

app = typer.Typer(help="Serve tuned configs to many machines: tune once, everywhere.")

LONGEST_DAYS = 36_500
"""Of every number of days: a century is for ever."""

DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        "--database",
        help="sqlite:////path/to/file.db or postgresql://…; by default LAUNCHKIT_DATABASE, or else "
        "a file in the user's data directory.",
    ),
]


def database_url(given: str | None) -> str:
    """Return the URL of the database that a command is about; a default's directory is made."""
    named = given or settings.current().database
    if named is not None:
        return named
    folder = settings.data_home()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return f"sqlite:///{folder / 'service.db'}"


def needing_the_extra(error: ModuleNotFoundError) -> UsageError:
    """Return what to say where something that the service needs is not installed."""
    return UsageError(
        f"the service needs {error.name}, which is not installed. Run: pip install "
        "'launchkit-triton[service]'."
    )


@app.callback(invoke_without_command=True)
def command(
    context: typer.Context,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8477,
    database: DatabaseUrl = None,
    open_reads: Annotated[
        bool, typer.Option("--open-reads", help="Let everybody read without a token.")
    ] = False,
    open_writes: Annotated[
        bool, typer.Option("--open-writes", help="Let everybody read and write without a token.")
    ] = False,
    allow_no_tokens: Annotated[
        bool,
        typer.Option("--allow-no-tokens", help="Listen where others can reach it all the same."),
    ] = False,
    trusted_proxy: Annotated[
        list[str] | None,
        typer.Option(help="Address of a load balancer whose X-Forwarded-For is believed."),
    ] = None,
    secure_cookies: Annotated[
        bool, typer.Option("--secure-cookies", help="Cookies of the page for https only.")
    ] = False,
    no_migrate: Annotated[
        bool, typer.Option("--no-migrate", help="Refuse an older database instead of migrating.")
    ] = False,
    rate: Annotated[
        float, typer.Option(min=0, help="Requests a second per token or address; 0: any.")
    ] = 2000.0,
    write_rate: Annotated[
        float, typer.Option(min=0, help="Writes a second per token or address; 0: any.")
    ] = 500.0,
    bundle_limit_mib: Annotated[
        int, typer.Option(min=1, max=256, help="No larger bundle is taken or given, in MiB.")
    ] = 64,
    audit_days: Annotated[
        int,
        typer.Option(min=0, max=LONGEST_DAYS, help="Days that the audit log is kept; 0: for ever."),
    ] = 365,
    quiet: Annotated[bool, typer.Option("--quiet", help="Write no line per request.")] = False,
    as_json: AsJson = False,
) -> None:
    """Serve until it is told to stop, with SIGTERM or Ctrl-C; requests in progress are finished.

    The first line says where. Nobody writes without a token, and nobody reads without --open-reads:
    launchkit serve token create makes one. The web page is at the same address.
    """
    if context.invoked_subcommand is not None:
        return
    try:
        from launchkit.service import running
        from launchkit.service.options import ServiceSettings
    except ModuleNotFoundError as error:
        raise needing_the_extra(error) from error
    told = ServiceSettings(
        database_url(database), open_reads=open_reads, open_writes=open_writes,
        migrate=not no_migrate, rate_per_s=rate, writes_per_s=write_rate, audit_days=audit_days,
        secure_cookies=secure_cookies, bundle_limit_bytes=bundle_limit_mib * 2**20,
    )  # fmt: skip
    where = running.Listening(host, port, allow_no_tokens, tuple(trusted_proxy or ()))
    with contextlib.nullcontext() if quiet else running.logged_to_stderr():
        running.serve(told, where, lambda url, service: _say(url, service, told, as_json))


def _say(url: str, service: Service, told: ServiceSettings, as_json: bool) -> None:
    shown = service.database.engine.url.render_as_string(hide_password=True)
    if as_json:
        told_as = {"url": url, "database": shown, "schema": service.schema, "pid": os.getpid()}
        typer.echo(jsonio.dumps_compact(told_as))
        return
    typer.echo(f"launchkit serves {url} from {shown}")
    if not (told.open_writes or _has_tokens(service)):
        typer.echo("There are no tokens yet. Make one with: launchkit serve token create NAME")


def _has_tokens(service: Service) -> bool:
    from launchkit.service.auth import has_tokens

    return has_tokens(service.database)
