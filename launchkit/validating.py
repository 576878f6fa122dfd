"""Parsed JSON, held against what it must be: its schema number, its model. A leaf.

pydantic is imported when something is validated: who only reads JSON does not wait for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from launchkit.errors import BadDocumentError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

ModelT = TypeVar("ModelT")


def check_schema(
    parsed: object,
    *,
    source: str,
    field: str,
    newest: int,
    what: str,
    error: type[BadDocumentError] = BadDocumentError,
) -> dict[str, object]:
    """Return an object that says in ``field`` of which schema it is, from 1 to ``newest``.

    Raises ``error`` for anything else, which is not ``what``, and with ``newer`` set for a later one.
    """
    schema = parsed.get(field) if isinstance(parsed, dict) else None
    if not isinstance(parsed, dict) or type(schema) is not int or schema < 1:
        raise error(source, f"it is not {what}")
    if schema > newest:
        raise error(source, f"it has schema {schema}, newer than {newest}", newer=True)
    return parsed


def validated(adapter: TypeAdapter[ModelT], parsed: object, *, source: str) -> ModelT:
    """Return what was parsed as a pydantic model has it.

    Raises BadDocumentError with the first thing that does not fit, and where it stands.
    """
    from pydantic import ValidationError

    try:
        return adapter.validate_python(parsed)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(part) for part in found["loc"]) or "document"
        raise BadDocumentError(source, f"{place}: {' '.join(found['msg'].split())}") from None
