"""Commands of both parties: options, `serve`, `keygen` and `apikey`; heavy parts are imported by the commands."""

# annotations are read at once here: the help in them differs by party

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from label_dp.cli.numbers import whole
from label_dp.cli.output import echo, emit, show_version, table
from label_dp.cli.startup import collect_as_usual
from label_dp.errors import InvalidInput, LabelDPError
from label_dp.logs import announce, configure_logging, event, log_format_of
from label_dp.store.output_files import replacing

if TYPE_CHECKING:
    from label_dp.documents.invitation import Invitation
    from label_dp.documents.signing import SigningKey
    from label_dp.store.apikeys import ApiKeys

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document for programs.")]


def located(address: str) -> Any:
    """Find the table at an address; its path if it is a file here. Raises InvalidInput and its kinds, Unavailable."""
    from label_dp.store.table_files import table_at

    return table_at(address)


def table_option(*flags: str, **more: Any) -> Any:
    """Return an option that takes the address of a table and gives its path or its parts."""
    return typer.Option(*flags, parser=located, metavar="PATH", **more)


Force = Annotated[bool, typer.Option("--force", help="Replace the output file if there is one already.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask on a terminal whether to go on.")]
Expires = Annotated[
    str | None,
    typer.Option(metavar="DAYS|DATE", help="Valid for so many days, or until the end of this day (UTC); default ever."),
]
KeyName = Annotated[
    str | None, typer.Option("--name", help="Whose it is, a person or a program; shown wherever the key is.")
]
InvitationOut = Annotated[Path, typer.Option("--out", help="File for the invitation; it holds no secret.")]
InvitationFile = Annotated[Path, typer.Argument(metavar="FILE", help="The other party's invitation.")]
OwnName = Annotated[str, typer.Option("--name", help="Our name, as the other party shall see it.")]
Code = Annotated[
    str | None,
    typer.Option(
        help="Its code, as the other party read it to you, by telephone and not by the way that the file came; asked "
        "for on a terminal."
    ),
]
KeyId = Annotated[str, typer.Argument(metavar="ID", help="Id of the key, as `apikey list` shows it.")]


def commands_of(name: str, purpose: str) -> tuple[typer.Typer, typer.Typer, typer.Typer]:
    """Build the command `name`, with its still empty groups `apikey` and `audit`."""
    app = typer.Typer(
        name=name, help=purpose, no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False
    )
    apikey = typer.Typer(help="Keys for the REST interface.", no_args_is_help=True)
    audit = typer.Typer(help="The append-only, hash-chained audit store.", no_args_is_help=True)
    app.add_typer(apikey, name="apikey")
    app.add_typer(audit, name="audit")

    @app.callback()
    def options(
        _: Annotated[
            bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")
        ] = False,
    ) -> None:
        pass

    return app, apikey, audit


def add_serve(
    app: typer.Typer, party: str, usual_port: int, services: Callable[[], Any], create_app: Callable[[Any], Any]
) -> Callable[[], Any]:
    """Add `serve` of the "labels party" or the "features party"; `create_app` builds its application from its
    services. The caller keeps what is returned as `serving`: it makes the application in each of several processes."""
    prefix = party.upper().replace(" ", "_")

    @app.command()
    def serve(
        host: Annotated[str | None, typer.Option(help=f"Address to listen on; default from {prefix}_HOST.")] = None,
        port: Annotated[
            int | None,
            typer.Option(
                parser=whole("--port"),
                metavar="INTEGER",
                help=f"Port to listen on; default from {prefix}_PORT ({usual_port}).",
            ),
        ] = None,
        processes: Annotated[
            int,
            typer.Option(
                parser=whole("--processes", least=1),
                metavar="INTEGER",
                help="Processes that answer calls; with several, this one has the background work alone.",
            ),
        ] = 1,
    ) -> None:
        """Run the REST service and its background worker."""
        from label_dp.http import serving as server

        lines = log_format_of(party)
        configure_logging(lines)  # before any reading or migration
        with server.together(processes), _logged(lines, typer.Exit):
            found = services()
            home, public, settings = str(found.home.path), str(found.home.path / "keys/signing.pub"), found.settings
            text = f"{party}: home {home}, public key {public}"
            announce(lines, "starting", text, home=home, public_key=public)
            app, child = create_app(found), f"{create_app.__module__}:serving"
            collect_as_usual()
            address = host or settings.host, settings.port if port is None else port
            server.serve(app, *address, party, settings, processes, child)

    def serving() -> Any:
        from label_dp.http.serving import join

        configure_logging(log_format_of(party))
        with _logged("json", SystemExit):  # a log line in either format: the parent has the terminal
            return join(create_app(services()))

    return serving


@contextmanager
def _logged(lines: str, leave: type[BaseException]) -> Iterator[None]:
    """End the process with a log line for an error, where lines are JSON."""
    try:
        yield
    except LabelDPError as error:
        if lines != "json":
            raise
        logging.getLogger("label_dp").critical(error.detail, extra=event("refused", code=error.code))
        raise leave(error.exit_code) from None


def show_own_key(key_id: str, path: object, as_json: bool) -> None:
    """Print the id of our signing key and the path of its public half, for `keygen`."""
    emit({"key_id": key_id, "public_key": str(path)}, as_json, lambda: echo(f"{key_id}\n{path}"))


def write_invitation(invitation: "Invitation", key: "SigningKey", out: Path, force: bool) -> None:
    """Sign an invitation into the file `out`."""
    with replacing(out, force) as path:
        path.write_bytes(invitation.sign(key))


def say_code(invitation: "Invitation", out: Path, then: str) -> None:
    """Print where an invitation lies, its code, and what the other party does with it."""
    echo(f"{out}: our name, {'address' if invitation.url else 'audience'} and public key; send it, it holds no secret")
    echo(f"code {invitation.code}: read it to them by telephone when they ask for it")
    echo(f"there: {then}")


def compare_code(invitation: "Invitation", heard: str | None) -> None:
    """Hold an invitation's code to the one that the other party read aloud. Raises InvalidInput."""
    if heard is None and sys.stdin.isatty():
        echo(f"This file says that it is from {invitation.name}. Call them, and have its code read to you.", error=True)
        heard = str(typer.prompt("Code", err=True))
    if heard is None:
        raise InvalidInput("Give --code, the invitation's code as the other party read it to you by telephone.")
    invitation.require_code(heard)


def create_apikey(
    keys: "ApiKeys", role: str, audience: str | None, expires: str | None, name: str | None, as_json: bool
) -> None:
    """Create a key. The key alone goes to stdout, so that KEY=$(… apikey create …) works; its id goes to stderr."""
    key_id, secret = keys.create(role, audience, expires, name)
    row = next(k for k in keys.list() if k["id"] == key_id)
    data: dict[str, Any] = {member: row[member] for member in ("id", "name", "role", "audience", "expires")}
    data["key"] = secret

    def human() -> None:
        until = f", valid until {row['expires']}" if row["expires"] else ""
        whose = f" of {name}" if name else ""
        echo(f"id {key_id}{whose}, role {role}{until}; the key is shown this once:", error=True)
        echo(secret)

    emit(data, as_json, human)


def add_apikey_list_and_revoke(group: typer.Typer, services: Callable[[bool], Any]) -> None:
    """Add `apikey list` and `apikey revoke`; `apikey create` differs by party."""

    @group.command("list")
    def apikey_list(as_json: Json = False) -> None:
        """Show ids, names, roles and when each was last used; the keys themselves are not stored."""
        found = services(True).apikeys.list()
        columns = [name for name in ("id", "name", "role", "audience", "created", "expires", "last_used", "revoked")
                   if name in ("id", "role", "created") or any(k[name] for k in found)]  # fmt: skip
        rows = [[str(k[name] or "") for name in columns] for k in found]
        emit(found, as_json, lambda: table("API keys", [name.replace("_", " ") for name in columns], rows))

    @group.command("revoke")
    def apikey_revoke(key_id: KeyId, as_json: Json = False) -> None:
        """Make a key useless from now on."""
        services(True).apikeys.revoke(key_id)
        emit({"revoked": key_id}, as_json, lambda: echo(f"revoked {key_id}"))
