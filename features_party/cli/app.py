"""The typer application of the features party and what its commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from shared.service.cli import show_version

app = typer.Typer(
    name="features-party",
    help="Verify and account for privatized messages, join them with features, correct for the noise, train models.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
apikey = typer.Typer(help="Keys for the REST interface.", no_args_is_help=True)
audit = typer.Typer(help="The append-only, hash-chained audit store.", no_args_is_help=True)
app.add_typer(apikey, name="apikey")
app.add_typer(audit, name="audit")

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document for programs.")]
FilePath = Path
LabelsKey = Annotated[
    FilePath | None,
    typer.Option(help="The labels party's keys/signing.pub; default the pinned key that the message names."),
]
Messages = Annotated[
    list[FilePath],
    typer.Option("--message", help="A message (.parquet), a folder of them, or a pattern such as 'in/*'; repeatable."),
]
MoreMessages = Annotated[
    list[FilePath] | None,
    typer.Argument(metavar="MESSAGE", help="Further messages, as a pattern names them.", show_default=False),
]
Features = Annotated[FilePath, typer.Option("--features", "--examples", help="Parquet or CSV file of features.")]
IdColumn = Annotated[str, typer.Option(help="Its column with example ids.")]
CorrectionName = Annotated[
    str,
    typer.Option(
        help="auto (what a model learns best from, by the noise and the rows), none (outputs as drawn), debias (no "
        "bias, whatever the noise) or posterior (the expected label of an output)."
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there already.")]
Unmatched = Annotated[
    FilePath | None, typer.Option(help="Write the ids that found no partner to this file (.parquet or .csv).")
]


@app.callback()
def options(
    _: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def services(existing: bool = False) -> Any:
    """`existing`: for commands that only look, which must not make a home, keys and an empty store on the way."""
    from features_party.bootstrap import bootstrap

    return bootstrap(existing=existing)


def public_key(path: FilePath | None) -> Any:
    """The verifying key in a file; None for no file."""
    from shared.documents.signing import VerifyingKey

    return VerifyingKey.load(path) if path is not None else None
