"""`privatize`, `message` and `inspect`: from a file of labels or events to one message, and what it says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from label_dp.actors import COMMAND_LINE, person
from label_dp.cli.answers import Csv, Parquet, budget_rows, headline, show_written, write_groupings
from label_dp.cli.commands import command
from label_dp.cli.layout import number
from label_dp.cli.output import emit, progress, table, warn
from label_dp.cli.panels import EXPERT_PANEL
from label_dp.cli.party_commands import Force, Json
from label_dp.errors import InvalidFile, InvalidInput
from label_dp.named_modules import installed
from labels_party.cli.app import app, services
from labels_party.cli.names import told_apart

if TYPE_CHECKING:
    from label_dp.schemas.population import Batch, Population
    from label_dp.schemas.release import Release


def shortened(values: list[str], most: int = 8) -> str:
    """Join the first `most` values; an ellipsis marks omitted ones."""
    return "; ".join(values[:most]) + ("; …" if len(values) > most else "")


def show_message(data: dict[str, Any]) -> None:
    """Print the figures of a message as a table."""
    eps = data["epsilon"]
    clip = "" if eps["clip"] == "0" else f"{eps['clip']} clip + "
    rows = [
        ["message", str(data["message"])],
        ["release", data["release"]],
        ["population", f"{data['population']} ({data['label']}, domain {data['domain']})"],
        ["examples", f"{data['examples']:,}"],
        ["audiences", ", ".join(data["audiences"])],
        ["mechanism", f"{data['mechanism']}, {data['loss']} loss, prior {data['prior']}"],
        ["ε", f"{eps['total']} = {clip}{eps['prior']} prior + {eps['randomize']} randomize; δ = {eps['delta']}"],
        *budget_rows(data),
    ]
    if data.get("clipping"):
        c = data["clipping"]
        bought = f"{'quantile' if len(c['quantiles']) == 1 else 'quantiles'} {', '.join(c['quantiles'])}"
        rows.append(["clipped", f"at {' and '.join(c['bounds'])}: {bought} bought inside {c['public_domain']}"])
    if data["expected_label_loss"] is not None:
        rows.append(["expected label loss", number(data["expected_label_loss"])])
    for b in data.get("bins", [])[:16]:
        rows.append(["bin", f"{_shown(b['from'])} … {_shown(b['to'])}  →  {_shown(b['output'])}"])
    if "lattice" in data:
        ends, step = (number(data["lattice"][end]) for end in ("from", "to")), number(data["lattice"]["step"])
        rows.append(["outputs", f"{' … '.join(ends)}, {step} apart ({data['lattice']['outputs']:,})"])
    elif "subsets" in data:
        subsets = data["subsets"]
        rows.append(["outputs", f"{subsets['outputs']:,} subsets of up to {subsets['size']} of {subsets['of']} labels"])
    elif "bins" not in data:
        rows.append(["outputs", shortened([_shown(v) for v in data["outputs"]])])
    rows += [[f"{name} of", table] for name, table in data.get("read", {}).items()]
    beside = [name for name in data.get("files", []) if name != str(data["message"])]
    if beside:
        rows.append(["beside it", ", ".join(beside)])
    rows += event_rows(data)
    rows.append(["signed by", data["key_id"]])
    rows += [["note", heap["told"]] for heap in data["heaps"]]
    if "note" in data:
        rows.append(["note", data["note"]])
    if "labels_key" in data:
        rows.append(["public key", data["labels_key"]])
    table(f"Privatized message{headline(data)}", ["", ""], rows)


def _shown(label: float | str) -> str:
    return label if isinstance(label, str) else number(label)


def event_rows(data: dict[str, Any]) -> list[list[str]]:
    """Describe what became of the events of a file; made of raw labels, for the owner's terminal alone."""
    counts = data.get("events")
    if counts is None:
        return []
    from label_dp.schemas.events import BECAME

    came = f"not private: {counts['records']:,} records, and {counts['examples']:,} examples with one that counts"
    return [["events", came], *(["", f"{counts[name]:,} {words}"] for name, words in BECAME.items() if counts[name])]


def show_waiting(data: dict[str, Any]) -> None:
    """What people see of a release that a second person has yet to approve."""
    rows = [
        ["release", data["release"]],
        ["population", data["population"]],
        ["state", f"{data['state']}, asked for by {data['requested_by_name'] or data['requested_by']}"],
        ["ε", f"{data['epsilon']['total']}, not charged yet"],
        ["next", data["next"]],
        *event_rows(data),
    ]
    table("Waiting for approval", ["", ""], rows)


def _only_file(labels: str | None, events: str | None, rule: Path | None, examples: str | None) -> str:
    """Return the file of labels or events. Raises InvalidInput for options that do not go together."""
    file = labels if events is None else events
    if file is None or (labels is not None and events is not None):
        raise InvalidInput("Name the file of labels by --labels, or one of events by --events, and not both.")
    if (events is None) != (rule is None):
        raise InvalidInput("--events and --rule go together: the rule says what of the events is the label.")
    if events is not None and examples is None:
        raise InvalidInput(
            "--events needs --examples, the file that lists all example ids: which examples there are must not come "
            "from events."
        )
    return file


Engine = Literal["local", "spark"]


@command(app)
def privatize(
    *,
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Parquet or CSV with ids and labels: a file, folder or pattern, here or at s3://, gs://, abfs://; "
            "delta:PLACE@VERSION, iceberg:CATALOG/NAMESPACE.TABLE@SNAPSHOT; - (an Arrow stream). Spark: only Parquet.",
        ),
    ] = None,
    events: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="File of conversion events in place of labels, which --rule makes of them: .ndjson, .jsonl, .json or "
            "Parquet, at an address as of --labels. --label-column then names the label.",
        ),
    ] = None,
    rule: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="TOML file with the rule by which events become labels; the population declares it."
        ),
    ] = None,
    id_column: Annotated[str, typer.Option(help="The column with example ids, of each file with such a column.")],
    rules: Population,
    opened: Batch,
    asked: Release,
    out: Annotated[
        Path,
        typer.Option(
            help="Where the message goes, say X.parquet; its signed manifest X.parquet.dsse.json and, if any, "
            "its private prior X.prior.parquet are put beside it. None is ever overwritten."
        ),
    ],
    examples: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="File that lists all example ids; without it presence is public, and events need it. With "
            "window_days in the rule its column 'time' has the time of each example in Unix seconds.",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--as", help="Who asks; needed in a four-eyes population.", rich_help_panel=EXPERT_PANEL),
    ] = None,
    engine: Annotated[
        Engine | None,
        typer.Option(
            help="What seals and draws: this process, or Spark; default from LABELS_PARTY_ENGINE (local).",
            rich_help_panel=EXPERT_PANEL,
        ),
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(
            help="URL of Spark's master; default from LABELS_PARTY_SPARK_MASTER (local[*]).",
            rich_help_panel=EXPERT_PANEL,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Turn a file of labels, or of events, into one signed, privatized message, charged to the ledger."""
    from labels_party.files.inputs import population_of, request_of, rule_of
    from labels_party.files.jobs import LabelsFile, run
    from labels_party.files.message import Message

    file = _only_file(labels, events, rule, examples)
    declared = population_of(rules if rule is None else rules.model_copy(update={"events": rule_of(rule)}))
    asked_by = person(name) if name is not None else COMMAND_LINE
    with progress("privatize", as_json) as report:
        party = services(engine=engine, spark_master=master)
        work = Message(request_of(party, declared, asked), out, asked_by, warn)
        result = run(party, LabelsFile(file, id_column, declared, examples, opened.id_prefix), work, report)
    emit(result, as_json, lambda: show_message(result) if "message" in result else show_waiting(result))


@app.command()
def message(
    release: Annotated[str, typer.Argument(help="Id of a published release.")],
    out: Annotated[Path, typer.Option(help="Where its message goes.")],
    as_json: Json = False,
) -> None:
    """Write the message of a published release once more, byte for byte; nothing is charged."""
    from labels_party.files.jobs import finish
    from labels_party.files.message import write_out
    from labels_party.work.kind import RELEASES

    party = services(existing=True)
    with progress("message", as_json) as report, told_apart(party, release):
        finish(party, release, RELEASES, report)
    result = write_out(party, release, out)
    emit(result, as_json, lambda: show_message(result))


@app.command()
def inspect(
    path: Annotated[
        Path, typer.Argument(metavar="MESSAGE", help="A message (.parquet) or its folder, or signed answers (.json).")
    ],
    labels_key: Annotated[
        Path | None, typer.Option(help="Public key to verify with; default this party's own, of now and before.")
    ] = None,
    csv: Csv = None,
    parquet: Parquet = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Verify a message, or an answer, and show what it says: mechanism, bins, ε split, audiences. Writes nothing else
    than sums by group, where asked."""
    from label_dp.documents.bundle import Bundle, verify
    from label_dp.documents.signing import VerifyingKey
    from labels_party.contents import of_answer, of_message

    ours = None if labels_key is not None else services(existing=True).own_keys  # earlier keys too

    def signer(envelope: bytes) -> tuple[VerifyingKey, Path]:
        if labels_key is not None:
            return VerifyingKey.load(labels_key), labels_key
        assert ours is not None
        key = ours.of(envelope)
        return key, ours.public_file(key)

    if path.suffix in (".json", ".ndjson") and path.is_file():
        from label_dp.documents.answer import read_answers

        contents = []
        for envelope in read_answers(path):
            key, place = signer(envelope)
            contents.append(of_answer(envelope, key) | {"out": str(path), "labels_key": str(place), "verified": True})
        files = write_groupings(contents, csv, parquet, force=force)
        results = [content | ({"files": files} if files else {}) for content in contents]

        def human() -> None:
            output = installed("labels_party.companions.cli.answers")
            for content in contents:
                output.show_answer(content)
            show_written(files)

        emit(results if len(results) > 1 else results[0], as_json, human)
        return
    if not path.exists():
        raise InvalidFile(f"There is no message at '{path}'.")
    write_groupings([], csv, parquet)  # refuses: a message has none
    verified = verify(path, signer(Bundle(path).envelope())[0], None)
    prior = None
    if verified.prior_path is not None:
        from labels_party.message.priors import read_prior

        prior = read_prior(verified.prior_path, verified.manifest.domain)
    result = of_message(verified.manifest, prior) | {"message": str(path), "verified": True}
    emit(result, as_json, lambda: show_message(result))
