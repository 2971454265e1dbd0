"""The typer application of the labels party and what its commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from shared.service.cli import show_version

app = typer.Typer(
    name="labels-party",
    help="Take in sensitive labels, account for every ε, and emit one signed, privatized message.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
apikey = typer.Typer(help="Keys for the REST interface.", no_args_is_help=True)
audit = typer.Typer(help="The append-only, hash-chained audit store.", no_args_is_help=True)
app.add_typer(apikey, name="apikey")
app.add_typer(audit, name="audit")

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document for programs.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the output file if there is one already.")]
FilePath = Path


@app.callback()
def options(
    _: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def services(existing: bool = False) -> Any:
    """`existing`: for commands that only look, which must not make a home, keys and an empty ledger on the way."""
    from labels_party.bootstrap import bootstrap

    return bootstrap(existing=existing)
