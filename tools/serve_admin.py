"""``launchkit serve token``, ``namespace`` and ``migrate``: the service's database. Of the tools."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from launchkit.errors import UsageError
from launchkit.printing import printable
from launchkit.tools.configs_output import finding, show, table
from launchkit.tools.output import AsJson, echo_json
from launchkit.tools.serve import LONGEST_DAYS, DatabaseUrl, database_url, needing_the_extra

if TYPE_CHECKING:
    from launchkit.service.db import Database

tokens = typer.Typer(help="Make, list and revoke the tokens that say who may use the service.")
namespaces = typer.Typer(help="Make and list the service's namespaces.")

_SCOPES = Annotated[
    Literal["read", "write", "admin"],
    typer.Option(help="Each allows what those before it allow."),
]


@contextlib.contextmanager
def _database(given: str | None) -> Iterator[Database]:
    try:
        from launchkit.service import db, migrating
        from launchkit.service.options import ServiceSettings
    except ModuleNotFoundError as error:
        raise needing_the_extra(error) from error
    with db.usable(db.connect(ServiceSettings(database_url(given)))) as opened:
        migrating.prepare(opened, migrate=True)
        yield opened


@tokens.command("create")
def create_token(
    name: Annotated[str, typer.Argument(help="Whose it is, for the audit log.")],
    scope: _SCOPES = "write",
    namespace: Annotated[
        list[str] | None, typer.Option(help="Where it is good; repeat it. Left out: everywhere.")
    ] = None,
    days: Annotated[
        float | None,
        typer.Option(min=0, max=LONGEST_DAYS, help="Days until it expires; left out: never."),
    ] = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Make a token and print it, this once: the database keeps its hash alone.

    Namespaces that do not exist are made.
    """
    with _database(database) as opened:
        from launchkit.service import auth

        allowed = tuple(namespace or (auth.EVERYWHERE,))
        made = auth.create_token(opened, name, scope, allowed, days)
    if as_json:
        echo_json({"token": made, "id": made.split("_")[1], "name": name, "scope": scope,
                   "namespaces": allowed})  # fmt: skip
    else:
        typer.echo(made)


@tokens.command("revoke")
def revoke_token(
    token: Annotated[str, typer.Argument(help="Its id, as token list shows it, or all of it.")],
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Revoke a token; servers refuse it within two seconds. Exit code 1: none such is in force."""
    with _database(database) as opened:
        from launchkit.service import auth

        revoked = auth.revoke_token(opened, token)
    if as_json:
        echo_json({"revoked": revoked})
    elif revoked:
        typer.echo("It is revoked.")
    if not revoked:
        finding("No such token is in force: nothing was changed.")


@tokens.command("list")
def list_tokens(database: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Show every token that was made, without its secret."""
    with _database(database) as opened:
        from launchkit.service import auth

        found = auth.list_tokens(opened)
        now_ms = _now_ms(opened)
    rows = [_token_row(each, now_ms) for each in found]
    if as_json:
        echo_json({"tokens": rows})
        return
    columns = ["id", "name", "scope", "namespaces", "created", "state"]
    shown = [[str(row[name]) for name in columns] for row in rows]
    show(table("tokens", columns, shown))


@namespaces.command("create")
def create_namespace(
    name: Annotated[str, typer.Argument(help="A part of URLs: lower case, digits, ., _ and -.")],
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Make a namespace. Exit code 1: there is one of this name."""
    with _database(database) as opened:
        from launchkit.service import spaces

        made = spaces.make(opened, name, "command line")
    if as_json:
        echo_json({"namespace": name, "created": made})
    elif made:
        typer.echo(f"Namespace {printable(name)} is made.")
    if not made:
        finding("There is one of this name: nothing was changed.")


@namespaces.command("list")
def list_namespaces(database: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Show every namespace and how many records it has."""
    with _database(database) as opened:
        from launchkit.service import spaces

        found = spaces.counted(opened)
    if as_json:
        echo_json({"namespaces": [{"name": name, "records": count} for name, count in found]})
    else:
        rows = [[name, str(count)] for name, count in found]
        show(table("namespaces", ["namespace", "records"], rows))


def migrate(database: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Bring the database to this launchkit's schema; servers of an older one then end."""
    with _database(database) as opened:
        from launchkit.service import migrating

        schema = migrating.newest_version()
        kind = opened.kind
    if as_json:
        echo_json({"schema": schema, "database": kind})
    else:
        typer.echo(f"The {kind} database has schema {schema}.")


def prune(
    records_days: Annotated[
        int | None,
        typer.Option(
            min=0, max=LONGEST_DAYS, help="Delete records without a new result for so long."
        ),
    ] = None,
    snapshots_days: Annotated[
        int | None, typer.Option(min=0, max=LONGEST_DAYS, help="Delete snapshots that are older.")
    ] = None,
    audit_days: Annotated[
        int | None,
        typer.Option(
            min=0, max=LONGEST_DAYS, help="Delete entries of the audit log that are older."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Delete what is old, of what an option is given for. A running server may go on."""
    if (records_days, snapshots_days, audit_days) == (None, None, None):
        raise UsageError("nothing is to be deleted. Give --records-days, or another age.")
    with _database(database) as opened:
        from launchkit.service import retention

        ages = retention.Ages(records_days, snapshots_days, audit_days)
        counts = retention.prune(opened, ages, dry_run=dry_run, writer="command line")
    if as_json:
        echo_json({"deleted": {} if dry_run else counts, "found": counts})
        return
    for what, count in counts.items():
        typer.echo(f"{what}: {count} {'would be ' if dry_run else ''}deleted")


def _token_row(entry: Any, now_ms: int) -> dict[str, Any]:
    from launchkit.service.db import utc_text

    state = "in force"
    if entry.expires_ms is not None:
        over = entry.expires_ms <= now_ms
        state = f"{'expired' if over else 'until'} {utc_text(entry.expires_ms)}"
    if entry.revoked_ms is not None:
        state = f"revoked {utc_text(entry.revoked_ms)}"
    return {
        "id": entry.id,
        "name": entry.name,
        "scope": entry.scope,
        "namespaces": ",".join(entry.namespaces),
        "created": utc_text(entry.created_ms),
        "state": state,
    }


def _now_ms(opened: Database) -> int:
    with opened.reading() as connection:
        return opened.now_ms(connection)
