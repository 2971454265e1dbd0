"""The command `labels-party`. Heavy modules are imported by the commands that need them, so that help is instant."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from shared.errors import InvalidFile
from shared.service.cli import emit, progress, run, table

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
FilePath = Path


def main() -> None:
    run(app)


def _services(existing: bool = False) -> Any:
    """`existing`: for commands that only look, which must not make a home, keys and an empty ledger on the way."""
    from labels_party.bootstrap import bootstrap

    return bootstrap(existing=existing)


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on; default from LABELS_PARTY_HOST.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; default from LABELS_PARTY_PORT (8001).")] = None,
) -> None:
    """Run the REST service and its background worker."""
    from labels_party.api.app import create_app
    from labels_party.bootstrap import configure_logging
    from shared.service.serving import serve as listen

    configure_logging()
    services = _services()
    typer.echo(f"labels party: home {services.home.path}, public key {services.home.public_key_path}", err=True)
    chosen = port if port is not None else services.settings.port
    listen(create_app(services), host or services.settings.host, chosen, "labels party")


@app.command()
def keygen(as_json: Json = False) -> None:
    """Make the signing key (once) and show where its public half is; give that file to the features party."""
    services = _services()
    data = {"key_id": services.key.public.id, "public_key": str(services.home.public_key_path)}
    emit(data, as_json, lambda: typer.echo(f"{data['key_id']}\n{data['public_key']}"))


@app.command()
def privatize(
    labels: Annotated[FilePath, typer.Option(help="Parquet or CSV file with ids and labels.")],
    id_column: Annotated[str, typer.Option(help="Its column with example ids.")],
    label_column: Annotated[str, typer.Option(help="Its column with labels.")],
    domain: Annotated[str, typer.Option(help="LO:HI[:STEP] (both ends included), or a file with a column 'label'.")],
    epsilon: Annotated[str, typer.Option(help="ε of this release, all parts included.")],
    population: Annotated[str, typer.Option(help="Name of the population; made on first use.")],
    budget: Annotated[str, typer.Option(help="Lifetime ε per example of the population.")],
    out: Annotated[FilePath, typer.Option(help="Where the message goes (.parquet); its manifest is put beside it.")],
    examples: Annotated[
        FilePath | None, typer.Option(help="File that lists all example ids; without it presence is public.")
    ] = None,
    missing_label: Annotated[str | None, typer.Option(help="Label of listed examples that have none.")] = None,
    audience: Annotated[list[str] | None, typer.Option(help="Who may read the message; repeatable.")] = None,
    loss: Annotated[str, typer.Option(help="squared, absolute, poisson, or a file with a loss matrix.")] = "squared",
    mechanism: Annotated[str, typer.Option(help="rr-on-bins, one-bit or discrete-laplace.")] = "rr-on-bins",
    clip: Annotated[
        str | None, typer.Option(help="One bit only: A:B, public clipping ends; default the ends of the domain.")
    ] = None,
    prior: Annotated[
        str | None, typer.Option(help="estimate, uniform, a file (label, probability), or an own message.")
    ] = None,
    prior_epsilon: Annotated[str, typer.Option(help="auto, theorem7, or the ε that the prior may cost.")] = "auto",
    prior_method: Annotated[str, typer.Option(help="project (Euclidean) or clip (the paper's).")] = "project",
    out_of_domain: Annotated[str, typer.Option(help="clip or refuse labels outside the domain.")] = "clip",
    additional_release: Annotated[
        bool, typer.Option("--additional-release", help="Allow, and charge, a further release of the same examples.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Turn a file of labels into one signed, privatized message, charged to the ledger."""
    from labels_party.offline import PrivatizeJob
    from labels_party.offline import privatize as run_job
    from labels_party.options import parse_domain, parse_population, parse_request

    declared = parse_population(
        population,
        label_column,
        parse_domain(domain),
        budget,
        out_of_domain=out_of_domain,
        missing_label=missing_label,
        audiences=audience,
    )
    with progress("privatize", as_json) as report:
        services = _services()
        request = parse_request(
            services,
            declared,
            epsilon=epsilon,
            mechanism=mechanism,
            loss=loss,
            prior=prior,
            prior_epsilon=prior_epsilon,
            prior_method=prior_method,
            clip=clip,
            additional_release=additional_release,
        )
        job = PrivatizeJob(labels, id_column, label_column, declared, request, out, examples)
        result = run_job(services, job, report)
    emit(result, as_json, lambda: show_message(result))


@app.command()
def message(
    release: Annotated[str, typer.Argument(help="Id of a published release.")],
    out: Annotated[FilePath, typer.Option(help="Where its message goes.")],
    as_json: Json = False,
) -> None:
    """Write the message of a published release once more, byte for byte; nothing is charged."""
    from labels_party.offline import finish, write_out

    services = _services(existing=True)
    with progress("message", as_json) as report:
        finish(services, release, report)
    result = write_out(services, release, out)
    emit(result, as_json, lambda: show_message(result))


@app.command()
def inspect(
    path: Annotated[FilePath, typer.Argument(metavar="MESSAGE", help="A message (.parquet) or its folder.")],
    labels_key: Annotated[
        FilePath | None, typer.Option(help="Public key to verify with; default this party's own.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Verify a message and show what it says: mechanism, bins, ε split, audiences. Writes nothing."""
    from labels_party.offline import summary
    from shared.message.bundle import verify
    from shared.message.signing import VerifyingKey

    key = VerifyingKey.load(labels_key) if labels_key is not None else _services(existing=True).key.public
    result = summary(verify(path, key, None).manifest) | {"message": str(path), "verified": True}
    emit(result, as_json, lambda: show_message(result))


@app.command()
def plan(
    population: Annotated[str, typer.Option(help="Name or id of the population.")],
    epsilon: Annotated[str, typer.Option(help="ε to plan for.")],
    n: Annotated[int | None, typer.Option(min=1, help="Number of examples; or give --batch.")] = None,
    batch: Annotated[str | None, typer.Option(help="A sealed batch.")] = None,
    loss: Annotated[str, typer.Option(help="squared, absolute or poisson.")] = "squared",
    as_json: Json = False,
) -> None:
    """What each mechanism would give at this ε, from public or already private facts only."""
    from labels_party.options import make_preview

    result = make_preview(_services(existing=True), population, epsilon, loss, n, batch)

    def human() -> None:
        rows = [
            [
                m["mechanism"],
                m["epsilon"]["prior"],
                m["epsilon"]["randomize"],
                str(m["outputs"]),
                f"{m['expected_label_loss']:.4g}",
                f"{m['flip_probability']:.4f}",
            ]
            for m in result["mechanisms"]
        ]
        table(
            f"n = {result['n']}, prior: {result['prior']}",
            ["mechanism", "ε prior", "ε randomize", "outputs", "expected label loss", "flip probability"],
            rows,
        )

    emit(result, as_json, human)


@app.command()
def budget(
    population: Annotated[str | None, typer.Option(help="Name or id; default all populations.")] = None,
    as_json: Json = False,
) -> None:
    """What each batch has spent of its population's lifetime ε."""
    services = _services(existing=True)

    def look(connection: Any) -> list[dict[str, Any]]:
        found = (
            [services.populations.get(connection, population)] if population else services.populations.list(connection)
        )
        return [services.ledger.report(connection, p) for p in found]

    reports = services.database.read("budget.look", look)

    def human() -> None:
        for r in reports:
            rows = [
                [b["batch"], b["state"], str(b["examples"] or ""), b["epsilon_spent"], b["epsilon_left"]]
                for b in r["batches"]
            ]
            table(
                f"{r['name']}: lifetime ε {r['epsilon_lifetime']} per example",
                ["batch", "state", "examples", "ε spent", "ε left"],
                rows,
            )

    emit(reports, as_json, human)


@apikey.command("create")
def apikey_create(
    role: Annotated[str, typer.Option(help="owner, ingest, features or auditor.")],
    audience: Annotated[str | None, typer.Option(help="For role features: whose messages the key may read.")] = None,
    as_json: Json = False,
) -> None:
    """Make a key; it is shown once."""
    key_id, secret = _services().apikeys.create(role, audience or ("features-party" if role == "features" else None))
    emit({"id": key_id, "role": role, "key": secret}, as_json, lambda: typer.echo(secret))


@apikey.command("list")
def apikey_list(as_json: Json = False) -> None:
    """Show ids and roles; the keys themselves are not stored."""
    keys = _services(existing=True).apikeys.list()
    columns = ["id", "role", "audience", "created", "revoked"]
    emit(keys, as_json, lambda: table("API keys", columns, [[str(k[c] or "") for c in columns] for k in keys]))


@apikey.command("revoke")
def apikey_revoke(key_id: Annotated[str, typer.Argument(help="Id of the key.")]) -> None:
    """Make a key useless from now on."""
    _services(existing=True).apikeys.revoke(key_id)


@audit.command("show")
def audit_show(
    population: Annotated[str | None, typer.Option(help="Name or id of a population.")] = None, as_json: Json = False
) -> None:
    """All events, oldest first."""
    from shared.audit.store import describe

    services = _services(existing=True)

    def look(connection: Any) -> list[Any]:
        if population is None:
            return services.audit.events(connection)  # type: ignore[no-any-return]  # imported lazily
        found = services.populations.get(connection, population)
        return services.audit.events(connection, population=found.id)  # type: ignore[no-any-return]  # imported lazily

    events = services.database.read("audit.show", look)
    rows = [
        [
            str(e.sequence),
            e.time,
            e.kind,
            e.subject.population_name or "",
            e.subject.release or e.subject.batch or "",
            str(e.split.total) if e.split.total else "",
        ]
        for e in events
    ]
    columns = ["no.", "time", "event", "population", "subject", "ε"]
    emit([describe(e) for e in events], as_json, lambda: table("Audit store of the labels party", columns, rows))


@audit.command("export")
def audit_export(
    out: Annotated[FilePath, typer.Option(help="File for the signed export.")], as_json: Json = False
) -> None:
    """Write all events as one signed document that anybody with the public key can verify."""
    services = _services(existing=True)
    data = services.database.read("audit.export", lambda c: services.audit.export(c, services.key))
    try:
        out.write_bytes(data)
    except OSError as error:
        raise InvalidFile(f"'{out}' cannot be written ({error.strerror}).") from None
    emit({"export": str(out), "bytes": len(data)}, as_json, lambda: typer.echo(out))


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
    from shared.message.signing import VerifyingKey

    if export is None:
        services = _services(existing=True)
        count, head = services.database.read("audit.verify", services.audit.verify)
    else:
        public = VerifyingKey.load(key) if key is not None else _services(existing=True).key.public
        from shared.tables import read_bytes

        events = verify_export(read_bytes(export), public)
        count, head = len(events), events[-1].digest if events else ""
    emit(
        {"events": count, "head": head, "verified": True},
        as_json,
        lambda: typer.echo(f"{count} events verified, head {head}"),
    )


def shortened(values: list[str], most: int = 8) -> str:
    return ", ".join(values[:most]) + (", …" if len(values) > most else "")


def show_message(data: dict[str, Any]) -> None:
    eps = data["epsilon"]
    rows = [
        ["message", str(data["message"])],
        ["release", data["release"]],
        ["population", f"{data['population']} ({data['label']}, domain {data['domain']})"],
        ["examples", f"{data['examples']:,}"],
        ["audiences", ", ".join(data["audiences"])],
        ["mechanism", f"{data['mechanism']}, {data['loss']} loss, prior {data['prior']}"],
        ["ε", f"{eps['total']} = {eps['prior']} prior + {eps['randomize']} randomize; δ = {eps['delta']}"],
        ["budget", f"{data['epsilon_spent']} of {data['epsilon_lifetime']} spent per example"],
    ]
    if data["expected_label_loss"] is not None:
        rows.append(["expected label loss", f"{data['expected_label_loss']:.5g}"])
    for b in data.get("bins", [])[:16]:
        rows.append(["bin", f"{b['from']:g} … {b['to']:g}  →  {b['output']:.5g}"])
    if "bins" not in data:
        rows.append(["outputs", shortened([f"{v:.5g}" for v in data["outputs"]])])
    rows.append(["signed by", data["key_id"]])
    if "note" in data:
        rows.append(["note", data["note"]])
    if "labels_key" in data:
        rows.append(["public key", data["labels_key"]])
    table("Privatized message", ["", ""], rows)
