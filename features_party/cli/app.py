"""The typer application of the features party, `serve`, `audit`, and what the other commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from label_dp.cli.audit_group import Audited, add_audit_commands
from label_dp.cli.numbers import real
from label_dp.cli.panels import EXPERT_PANEL
from label_dp.cli.party_commands import add_serve, commands_of, table_option
from label_dp.errors import InvalidInput, NotFound

app, apikey, audit = commands_of(
    "features-party",
    "Verify and account for privatized messages, join them with features, correct for the noise, train models.",
)

LabelsKey = Annotated[
    Path | None,
    typer.Option(help="The labels party's keys/signing.pub; default the pinned key that the message names."),
]
MESSAGE = typer.Option(
    "--message", help="A message (.parquet), a folder of them, or a pattern such as 'in/*'; repeatable."
)
Messages = Annotated[list[Path], MESSAGE]
OptionalMessages = Annotated[list[Path] | None, MESSAGE]
MoreMessages = Annotated[
    list[Path] | None,
    typer.Argument(metavar="MESSAGE", help="Further messages, as a pattern names them.", show_default=False),
]
Features = Annotated[Any, table_option("--features", "--examples", help="Parquet or CSV of features, or a lake table.")]
AnyFeatures = Annotated[
    str,
    typer.Option(
        "--features",
        "--examples",
        metavar="PATH",
        help="Parquet or CSV of features, here or in a store, or a lake table; with Spark, Parquet files.",
    ),
]
EngineName = Annotated[
    Literal["local", "disk", "spark"],
    typer.Option(help="What works: this process, in memory or from disk, or Spark.", rich_help_panel=EXPERT_PANEL),
]
Master = Annotated[
    str | None,
    typer.Option(help="With --engine spark: URL of Spark's master; default local[*].", rich_help_panel=EXPERT_PANEL),
]
IdColumn = Annotated[str, typer.Option(help="Its column with example ids.")]
CorrectionName = Annotated[
    str,
    typer.Option(
        help="auto (what a model learns best from, by the noise and the rows), none (outputs as drawn), debias (no "
        "bias, whatever the noise) or posterior (the expected label of an output)."
    ),
]
Unmatched = Annotated[
    Path | None, typer.Option(help="Write the ids that found no partner to this file (.parquet or .csv).")
]


UNMATCHED = "Where more than this share of the ids of messages has no features,"
WarnUnmatched = Annotated[
    float, typer.Option(parser=real("--warn-unmatched", 0, 1), metavar="NUMBER", help=f"{UNMATCHED} it is said aloud.")
]
RefuseUnmatched = Annotated[
    float, typer.Option(parser=real("--refuse-unmatched", 0, 1), metavar="NUMBER", help=f"{UNMATCHED} nothing is made.")
]


def services(existing: bool = False) -> Any:
    """`existing`: for commands that only look, which must not make a home, keys and an empty store on the way."""
    from features_party.bootstrap import bootstrap

    return bootstrap(existing=existing)


def open_model(name: str) -> Any:
    """A model by its folder, which takes precedence, or by its id or alias in the registry. Raises NotFound."""
    if (folder := Path(name)).is_dir():
        return model_of_folder(folder)
    registry = services(existing=True).models
    try:
        return registry.open(name)
    except NotFound:
        raise NotFound(
            f"There is no model '{name}': no folder has that name, and no model of the registry that id or alias."
        ) from None


def model_of_folder(folder: Path, key: Path | None = None) -> Any:
    """The model of a folder that `key` signed, by default one whose models we load. Raises VerificationFailed."""
    from features_party.bootstrap import loaded, signers
    from features_party.models.folder import load_model

    return load_model(folder, signers(loaded()) if key is None else [public_key(key)])


def public_key(path: Path | None) -> Any:
    """The verifying key in a file; None for no file."""
    from label_dp.documents.signing import VerifyingKey

    return VerifyingKey.load(path) if path is not None else None


def require_engine(engine: str, master: str | None) -> None:
    """Raises InvalidInput for a master of no engine."""
    if master is not None and engine != "spark":
        raise InvalidInput("--master is Spark's: say --engine spark with it.")


def _application(services: Any) -> Any:
    from features_party.api.app import create_app

    return create_app(services)


serving = add_serve(app, "features party", 8002, services, _application)


def _audited() -> Audited:
    party = services(existing=True)
    home = party.home
    signer, names = party.pinned.for_envelope, party.apikeys.names
    return Audited(party.database, party.audit, party.heads, home.own_key(), home.public_key, signer, names=names)


add_audit_commands(
    audit,
    "features",
    _audited,
    population="Only this population (its id).",
    kind="message-accepted",
    key="Public key of the export's party; default this party's own, or a pinned one.",
)
