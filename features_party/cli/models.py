"""`models`: the models of this party's registry, or of folders that `train` wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from features_party.cli.app import app, model_of_folder, open_model, services
from label_dp.cli.output import echo, emit, table
from label_dp.cli.panels import AROUND, OFFICER
from label_dp.cli.party_commands import Force, Json
from label_dp.store.output_files import replacing, writable

models = typer.Typer(help="Trained models: list, show, compare, export, sign, delete.", no_args_is_help=True)
app.add_typer(models, name="models", rich_help_panel=AROUND)

Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="An id or alias of the registry, or the folder of a model.")
]


@models.command("list")
def models_list(as_json: Json = False) -> None:
    """The models of the registry, oldest first."""
    from label_dp.store.paging import all_rows

    rows = all_rows(services(existing=True).models.list)
    columns = ["id", "aliases", "name", "kind", "loss", "rows", "releases", "calibration", "created"]
    members = {"label": "label", "ε per example": "epsilon", "explained": "explained"}

    def human() -> None:
        if not rows:
            echo("no models yet: the service's trainings make them; `train --out` writes a folder instead")
            return
        summaries = [row["summary"] or {} for row in rows]
        more = [[_cell(one.get(member)) for member in members.values()] for one in summaries]
        filled = [name for name in columns if name != "aliases" or any(row[name] for row in rows)]
        table(
            "Models",
            [*filled, *members],
            [
                [_cell(", ".join(row[c]) if c == "aliases" else row[c]) for c in filled] + cells
                for row, cells in zip(rows, more, strict=True)
            ],
        )

    emit(rows, as_json, human)


def _cell(value: Any) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.1%}"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return ", ".join(f"{one['epsilon_per_example']} of {one['name']}" for one in value)
    return str(len(value)) if isinstance(value, list) else "" if value is None else str(value)


@models.command("show")
def models_show(model: Model, as_json: Json = False) -> None:
    """The model's card: what it was trained on, what that cost, what it may claim."""
    from features_party.models.card_text import card_markdown

    card = open_model(model).card
    emit(card, as_json, lambda: echo(card_markdown(card).removesuffix("\n")))


@models.command("compare")
def models_compare(
    model: Annotated[list[str], typer.Argument(metavar="MODEL", help="Two or more, by id or folder.")],
    as_json: Json = False,
) -> None:
    """Side by side: mechanism, ε, rows, capacity, noise, gain over the constant. Of one label and domain only."""
    from features_party.cli.show import show_comparison
    from features_party.models.card_reading import reading_card
    from features_party.models.compare import compare

    data = compare([(name, open_model(name)) for name in model])
    with reading_card():
        emit(data, as_json, lambda: show_comparison(data))


@models.command("export")
def models_export(
    model: Model,
    out: Annotated[Path, typer.Option(help="File to write: a .zip for xgboost, an .onnx for onnx.")],
    form: Annotated[
        str,
        typer.Option("--format", help="xgboost (booster, encoding and card) or onnx (the whole pipeline in one file)."),
    ],
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a model for another stack."""
    from features_party.models.export import export

    writable(out, force)
    data = export(open_model(model), form)
    with replacing(out, force) as temporary:
        temporary.write_bytes(data)
    result = {"model": model, "format": form, "export": str(out), "bytes": len(data)}
    emit(result, as_json, lambda: echo(f"{out}: {len(data):,} bytes"))


@models.command("log")
def models_log(
    model: Model,
    tracking_uri: Annotated[
        str | None, typer.Option(help="MLflow's server, such as http://127.0.0.1:5000; default MLFLOW_TRACKING_URI.")
    ] = None,
    experiment: Annotated[str, typer.Option(help="Its experiment; made where there is none.")] = "label-dp",
    registered_model: Annotated[str | None, typer.Option(help="Register the model under this name.")] = None,
    run_name: Annotated[str | None, typer.Option(help="What to call the run.")] = None,
    with_code: Annotated[
        bool, typer.Option("--with-code", help="Send this software along, for servers where it is not installed.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Log a model as a run of MLflow: its ε, messages, mechanism, gain with interval, card, and itself as a pyfunc."""
    from features_party.integrations.tracking import Tracking, log_run, require_mlflow
    from label_dp.cli.startup import allow_pandas

    require_mlflow()
    allow_pandas()
    tracking = Tracking(
        tracking_uri=tracking_uri, experiment=experiment, registered_model=registered_model, with_code=with_code
    )
    result = log_run(open_model(model), tracking, name=run_name)
    emit(result, as_json, lambda: echo(f"run {result['run']} of experiment {experiment}: {result['model']}"))


@models.command("alias")
def models_alias(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="An id of the registry, or an alias.")],
    alias: Annotated[str, typer.Argument(metavar="ALIAS", help="Such as champion.")],
    remove: Annotated[bool, typer.Option("--remove", help="Take the alias from the model.")] = False,
    as_json: Json = False,
) -> None:
    """Give a model an alias, which commands and calls take in place of its id; another that had it has it no more."""
    registry = services(existing=True).models
    model_id = None if remove else registry.set_alias(model, alias)
    if remove:
        registry.remove_alias(model, alias)
    emit({"alias": alias, "model": model_id}, as_json, lambda: echo(f"{alias} is {model_id or 'no model now'}"))


@models.command("sign")
def models_sign(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of a model.")], as_json: Json = False
) -> None:
    """Vouch with our key for a folder that another key signed, or none; what this party trains is signed already.

    Whoever may write a folder could have put another model there: verify it first, or know where it was.
    """
    from features_party.models.folder import sign_model

    _say(str(folder), sign_model(folder, services().home.own_key()), as_json)


@models.command("verify")
def models_verify(
    model: Model,
    key: Annotated[
        Path | None,
        typer.Option("--key", help="Public key file of who must have signed it; default whose models we load."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check who signed a model, that its files are those, and say of which messages and at what ε it was made."""
    saved = open_model(model) if key is None else model_of_folder(Path(model), key)
    _say(model, saved.statement, as_json)


def _say(model: str, statement: Any, as_json: bool) -> None:
    """Print a signed statement."""

    def human() -> None:
        echo(f"{model}: signed with {statement.key_id}")
        for of in statement.sources:
            what = "rehearsal, no ε" if of.rehearsal else f"ε {of.epsilon.total}"
            echo(f"  {of.id}, {what}, digest {of.digest}")
        for one in statement.epsilon:
            echo(f"  ε {one.epsilon_per_example} per example of {one.population}, {one.key_id}")

    emit(statement.document(), as_json, human)


@models.command("delete")
def models_delete(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="An id of the registry.")], as_json: Json = False
) -> None:
    """Remove a model of the registry and its files. The audit store keeps saying that it was trained."""
    services(existing=True).models.delete(model)
    emit({"deleted": model}, as_json, lambda: echo(f"deleted {model}"))


@app.command("report", rich_help_panel=OFFICER)
def model_report(
    model: Annotated[str, typer.Option(help="An id or alias of the registry, or the folder of a model.")],
    out: Annotated[Path, typer.Option(help="Where the page goes (.html).")],
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a model's card as one page with pictures: what it learned from, ε, what it looks at, what it may claim."""
    from features_party.pages.models import model_report as made

    writable(out, force)
    facts = made(open_model(model), out, force=force)
    emit(facts, as_json, lambda: echo(out))
