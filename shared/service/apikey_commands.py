"""What `apikey create`, `list` and `revoke` of both parties do once they have their services."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shared.service.cli import emit, table

if TYPE_CHECKING:
    from shared.service.apikeys import ApiKeys

Expires = Annotated[
    str | None,
    typer.Option(metavar="DAYS|DATE", help="Valid for so many days, or until the end of this day (UTC); default ever."),
]
KeyId = Annotated[str, typer.Argument(metavar="ID", help="Id of the key, as `apikey list` shows it.")]


def create(keys: ApiKeys, role: str, audience: str | None, expires: str | None, as_json: bool) -> None:
    """The key alone goes to stdout, so that KEY=$(… apikey create …) works; its id goes to stderr."""
    key_id, secret = keys.create(role, audience, expires)
    row = next(k for k in keys.list() if k["id"] == key_id)
    data: dict[str, Any] = {"id": key_id, "role": role, "audience": audience, "expires": row["expires"], "key": secret}

    def human() -> None:
        until = f", valid until {row['expires']}" if row["expires"] else ""
        print(f"id {key_id}, role {role}{until}; the key is shown this once:", file=sys.stderr)  # noqa: T201 - the command line's own output
        print(secret)  # noqa: T201 - the command line's own output

    emit(data, as_json, human)


def show(keys: ApiKeys, as_json: bool) -> None:
    found = keys.list()
    columns = [name for name in ("id", "role", "audience", "created", "expires", "last_used", "revoked")
               if name in ("id", "role", "created") or any(k[name] for k in found)]  # fmt: skip
    rows = [[str(k[name] or "") for name in columns] for k in found]
    emit(found, as_json, lambda: table("API keys", [name.replace("_", " ") for name in columns], rows))


def revoke(keys: ApiKeys, key_id: str, as_json: bool) -> None:
    keys.revoke(key_id)
    emit({"revoked": key_id}, as_json, lambda: print(f"revoked {key_id}"))  # noqa: T201 - the command line's own output
