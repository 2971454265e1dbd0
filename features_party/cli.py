"""The command `features-party`. Heavy modules are imported by the commands that need them, so that help is instant."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from shared.service.cli import emit, progress, run, table

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
    list[FilePath], typer.Option("--message", help="A message (.parquet, or the folder of one in parts); repeatable.")
]
Features = Annotated[FilePath, typer.Option(help="Parquet or CSV file of features.")]
IdColumn = Annotated[str, typer.Option(help="Its column with example ids.")]
CorrectionName = Annotated[
    str, typer.Option(help="auto (debias where the channel allows it), none (outputs as drawn) or debias.")
]
Unmatched = Annotated[
    FilePath | None, typer.Option(help="Write the ids that found no partner to this file (.parquet or .csv).")
]


def main() -> None:
    run(app)


def _services(existing: bool = False) -> Any:
    from features_party.bootstrap import bootstrap

    return bootstrap(existing=existing)


def _key(path: FilePath | None) -> Any:
    from shared.message.signing import VerifyingKey

    return VerifyingKey.load(path) if path is not None else None


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on; default from FEATURES_PARTY_HOST.")] = None,
    port: Annotated[int | None, typer.Option(help="Port; default from FEATURES_PARTY_PORT (8002).")] = None,
) -> None:
    """Run the REST service and its background worker."""
    from features_party.api.app import create_app
    from features_party.bootstrap import configure_logging
    from shared.service.serving import serve as listen

    configure_logging()
    services = _services()
    typer.echo(f"features party '{services.settings.name}': home {services.home.path}", err=True)
    chosen = port if port is not None else services.settings.port
    listen(create_app(services), host or services.settings.host, chosen, "features party")


@app.command()
def keygen(as_json: Json = False) -> None:
    """Make the key that signs audit exports (once) and show where its public half is."""
    services = _services()
    path = services.home.path / "keys" / "signing.pub"
    data = {"key_id": services.home.own_key().public.id, "public_key": str(path)}
    emit(data, as_json, lambda: typer.echo(f"{data['key_id']}\n{data['public_key']}"))


@app.command("pin-key")
def pin_key(
    public_key: Annotated[FilePath, typer.Argument(metavar="PUB", help="The labels party's keys/signing.pub.")],
    as_json: Json = False,
) -> None:
    """Trust a labels party's key: its messages are then accepted without naming the key."""
    key = _services().pinned.pin(public_key)
    emit({"key_id": key.id}, as_json, lambda: typer.echo(f"pinned {key.id}"))


@app.command()
def pull(
    url: Annotated[str, typer.Option(help="The labels party's service, for example http://127.0.0.1:8001.")],
    release: Annotated[str, typer.Option(help="Id of a published release.")],
    out: Annotated[FilePath, typer.Option(help="Where the message goes (.parquet); its manifest is put beside it.")],
    labels_key: LabelsKey = None,
    api_key: Annotated[str | None, typer.Option(help="Our key there; better in FEATURES_PARTY_LABELS_API_KEY.")] = None,
    as_json: Json = False,
) -> None:
    """Download a message, verifying its manifest first and every byte before it gets its name."""
    from features_party.bootstrap import reader
    from features_party.labels_service import LabelsService
    from features_party.labels_url import permitted
    from features_party.pull import pull as run_pull

    settings, pinned = reader()
    key = _key(labels_key)
    if settings.labels_urls:  # without a list, whoever set the key here also typed the URL
        url = permitted(url, settings.labels_urls, own_key=api_key is not None)
    known = settings.labels_api_key.get_secret_value() if settings.labels_api_key else None
    with progress("pull", as_json) as report, LabelsService(url, api_key or known) as service:
        got = run_pull(
            service, release, lambda e: key if key is not None else pinned.for_envelope(e), settings.name, out, report
        )
    data = {
        "message": str(got.path),
        "release": got.manifest.release,
        "rows": got.manifest.n,
        "bytes": got.bytes,
        "manifest_digest": got.digest,
        "epsilon": dict(got.manifest.epsilon),
    }
    emit(data, as_json, lambda: typer.echo(f"{got.path}: {got.manifest.n:,} rows, ε {got.manifest.split.total}"))


@app.command()
def verify(
    path: Annotated[FilePath, typer.Argument(metavar="MESSAGE", help="A message (.parquet) or its folder.")],
    labels_key: LabelsKey = None,
    as_json: Json = False,
) -> None:
    """Check signature, audience and every byte. Writes nothing."""
    from features_party.bootstrap import reader
    from features_party.intake.accepted import summary
    from shared.message.bundle import Bundle
    from shared.message.bundle import verify as check

    settings, pinned = reader()
    found = check(path, _key(labels_key) or pinned.for_envelope(Bundle(path).envelope()), settings.name)
    data = {"verified": True, "message": str(path), **summary(found.manifest, found.digest)}

    def human() -> None:
        from features_party.cli_show import show_message

        show_message(data)

    emit(data, as_json, human)


@app.command()
def join(
    message: Messages,
    features: Features,
    id_column: IdColumn,
    out: Annotated[FilePath, typer.Option(help="Table to write (.parquet or .csv).")],
    labels_key: LabelsKey = None,
    correction: CorrectionName = "auto",
    list_unmatched: Unmatched = None,
    as_json: Json = False,
) -> None:
    """Write features with raw_label, corrected_label, noise_variance and release, for training elsewhere."""
    from features_party.offline import join_files

    with progress("join", as_json) as report:
        data = join_files(
            _services(), message, _key(labels_key), features, id_column, correction, out, list_unmatched, report
        )

    def human() -> None:
        from features_party.cli_show import show_join

        show_join(data)

    emit(data, as_json, human)


@app.command()
def train(
    message: Messages,
    features: Features,
    id_column: IdColumn,
    out: Annotated[FilePath, typer.Option(help="New folder for the model.")],
    labels_key: LabelsKey = None,
    model: Annotated[str, typer.Option(help="gbdt (boosted trees) or linear (ridge).")] = "gbdt",
    loss: Annotated[
        str | None, typer.Option(help="squared, absolute or poisson; default the loss of the messages.")
    ] = None,
    correction: CorrectionName = "auto",
    categorical: Annotated[
        list[str] | None, typer.Option(help="Treat this column as categories (text already is); repeatable.")
    ] = None,
    exclude: Annotated[list[str] | None, typer.Option(help="Leave this column out; repeatable.")] = None,
    list_unmatched: Unmatched = None,
    as_json: Json = False,
) -> None:
    """Account for the messages, join, correct, train, and save a model with its card."""
    from features_party.offline import train_files
    from features_party.trainer import Options

    options = Options(model, loss, correction, tuple(categorical or ()), tuple(exclude or ()))
    options.check()
    with progress("train", as_json) as report:
        card = train_files(
            _services(), message, _key(labels_key), features, id_column, options, out, list_unmatched, report
        )

    def human() -> None:
        from features_party.cli_show import show_card

        show_card(card, out)

    emit({"model": str(out), **card}, as_json, human)


@app.command()
def evaluate(
    model: Annotated[FilePath, typer.Option(help="Folder of a model.")],
    examples: Annotated[FilePath, typer.Option(help="Parquet or CSV file with features and true labels.")],
    label_column: Annotated[str, typer.Option(help="Its column with true labels.")],
    clip: Annotated[
        bool, typer.Option("--clip", help="Clip the true labels to the model's domain first; default: as they are.")
    ] = False,
    as_json: Json = False,
) -> None:
    """One JSON object: rows, mse, mae, poisson, and constant_mse (of the corrected training mean)."""
    from features_party.bootstrap import reader
    from features_party.evaluation import evaluate as run_evaluate
    from features_party.registry.folder import load_model

    threads = reader()[0].threads
    emit(run_evaluate(load_model(model), examples, label_column, clip=clip, threads=threads), True, lambda: None)


@app.command()
def predict(
    model: Annotated[FilePath, typer.Option(help="Folder of a model.")],
    features: Features,
    id_column: IdColumn,
    out: Annotated[FilePath, typer.Option(help="Table of id and prediction to write (.parquet or .csv).")],
    as_json: Json = False,
) -> None:
    """Predict every row of a file."""
    from features_party.bootstrap import reader
    from features_party.evaluation import predict_file
    from features_party.registry.folder import load_model

    rows = predict_file(load_model(model), features, id_column, out, threads=reader()[0].threads)
    emit({"predictions": str(out), "rows": rows}, as_json, lambda: typer.echo(f"{out}: {rows:,} predictions"))


@apikey.command("create")
def apikey_create(
    role: Annotated[str, typer.Option(help="trainer or auditor.")],
    as_json: Json = False,
) -> None:
    """Make a key; it is shown once."""
    key_id, secret = _services().apikeys.create(role)
    emit({"id": key_id, "role": role, "key": secret}, as_json, lambda: typer.echo(secret))


@apikey.command("list")
def apikey_list(as_json: Json = False) -> None:
    """Show ids and roles; the keys themselves are not stored."""
    keys = _services(existing=True).apikeys.list()
    columns = ["id", "role", "created", "revoked"]
    emit(keys, as_json, lambda: table("API keys", columns, [[str(k[c] or "") for c in columns] for k in keys]))


@apikey.command("revoke")
def apikey_revoke(key_id: Annotated[str, typer.Argument(help="Id of the key.")], as_json: Json = False) -> None:
    """Make a key useless from now on."""
    _services(existing=True).apikeys.revoke(key_id)
    emit({"revoked": key_id}, as_json, lambda: typer.echo(f"revoked {key_id}"))


@audit.command("show")
def audit_show(
    population: Annotated[str | None, typer.Option(help="Only this population (its id).")] = None,
    as_json: Json = False,
) -> None:
    """All events, oldest first."""
    from features_party.cli_show import show_events
    from shared.audit.store import describe

    services = _services(existing=True)
    only = {"population": population} if population is not None else {}
    events = services.database.read("audit.show", lambda c: services.audit.events(c, **only))
    emit([describe(e) for e in events], as_json, lambda: show_events(events))


@audit.command("export")
def audit_export(
    out: Annotated[FilePath, typer.Option(help="File for the signed export.")], as_json: Json = False
) -> None:
    """Write all events as one document signed with our own key; whoever has keys/signing.pub can verify it."""
    from features_party.storage.home import write_durably

    services = _services(existing=True)
    key = services.home.own_key()
    data = services.database.read("audit.export", lambda c: services.audit.export(c, key))
    write_durably(out, data)
    result = {"export": str(out), "bytes": len(data), "public_key": str(services.home.public_key)}
    emit(result, as_json, lambda: typer.echo(out))


@audit.command("verify")
def audit_verify(
    export: Annotated[
        FilePath | None, typer.Argument(help="An export; without it this party's own store is verified.")
    ] = None,
    key: Annotated[
        FilePath | None, typer.Option(help="Public key of the export's party; default this party's own.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check every hash, link and signature."""
    from shared.audit.store import verify_export
    from shared.tables import read_bytes

    if export is None:
        services = _services(existing=True)
        count, head = services.database.read("audit.verify", services.audit.verify)
    else:
        public = _key(key) or _services(existing=True).home.own_key().public
        events = verify_export(read_bytes(export), public)
        count, head = len(events), events[-1].digest if events else ""
    data = {"events": count, "head": head, "verified": True}
    emit(data, as_json, lambda: typer.echo(f"{count} events verified, head {head}"))
