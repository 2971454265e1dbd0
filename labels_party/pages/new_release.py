"""New release by pages alone: a population, a file of labels, what an ε would give, and the charge.

Every step calls the services that REST calls. What a step says of a file is made of raw labels: it is rendered once,
for the owner who sent the file, and neither stored nor logged.
"""

from __future__ import annotations

import json
import secrets
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from io import BytesIO
from typing import Any
from urllib.parse import urlencode

from fastapi import Response
from sqlalchemy.engine import Connection

from label_dp.class_names import spells_number
from label_dp.columnar.budget import needs
from label_dp.columnar.csv_text import header_of, other_separator, refuse_other_files
from label_dp.columnar.tables import is_parquet, read_table
from label_dp.documents.statement_text import in_words
from label_dp.errors import BudgetExceeded, Conflict, InvalidFile, InvalidInput, LabelDPError, NotFound
from label_dp.numbers import BadSpelling, whole_of
from label_dp.pages.site import FILE_FORM, FORM, Visit, page_router
from label_dp.privacy import Epsilon
from label_dp.schemas.base import option_of
from label_dp.schemas.json_types import JsonObject
from label_dp.schemas.plan import Plan
from label_dp.schemas.population import Population as PopulationAsked
from label_dp.schemas.release import Release
from label_dp.schemas.validation import as_model
from label_dp.store.idempotency import IdempotentCall
from labels_party.bootstrap import Services
from labels_party.labels.batch_uses import ENDED
from labels_party.labels.batches import EXAMPLES, ID_LIST, PUBLIC, Batch, require_sealed
from labels_party.labels.chunks import Chunks
from labels_party.labels.file_sentences import Checked, FileOfLabels, check
from labels_party.labels.formats.formats import CSV
from labels_party.labels.formats.source import Whole, text_need
from labels_party.labels.parsing import ID, LABEL
from labels_party.ledger.ceilings import second_person
from labels_party.ledger.populations import DEFAULT_AUDIENCE, Population, declare
from labels_party.ledger.rules import Account
from labels_party.pages.context import Owner, services
from labels_party.pages.plan import EPSILONS, NOTHING, USUAL, Text, cost_of, foreseen, most_of_one_charge

router = page_router()
TEXTS = ("name", "label", "domain", "lifetime_epsilon", "missing_label", "unit_column", "out_of_domain")
DEFAULTS = {"lifetime_epsilon": "2", "audiences": DEFAULT_AUDIENCE}  # constants: nothing of a file decides on them
USUAL_IDS = ("example_id", "id", "click_id")
OF_PYTHON = ("name", "label", "domain", "lifetime_epsilon")  # which `privatize` calls by other names
WORDS = {  # for options in sentences of `check`
    " (--clip-epsilon and --clip-quantile)": "",
    " (--out-of-domain refuse)": ", and this population refuses such labels",
    " (--out-of-domain)": "",
    "list all ids with --examples, and say with": "send the list of all examples too, and say with",
    "say with --missing-label what": "take a population that says what",
    "without --missing-label": "without a missing label,",
    "--domain ": "",
    "privatize": "The service",
}


@router.get("/new")
def begin(visit: Owner) -> Response:
    """Render the populations to choose from, and the form that declares one."""
    return _begin(visit, DEFAULTS, None)


@router.post("/new", dependencies=[FORM])
def declare_population(visit: Owner) -> Response:
    """Declare a population, as `POST /v1/populations`; a refusal is a sentence above the form."""
    ctx = services(visit)
    try:
        rules = declare(as_model(_declaration(visit.form), PopulationAsked))
        create = ctx.populations.create
        population = ctx.database.write("population.create", lambda c: create(c, rules, visit.caller.actor))
    except (InvalidInput, Conflict, NotFound) as error:
        return _begin(visit, visit.form, str(error))
    return visit.go(f"/new/{population.id}", "declared")


def _begin(visit: Visit, form: Mapping[str, str], wrong: str | None) -> Response:
    ctx = services(visit)
    populations = ctx.database.read("page.new", ctx.populations.list)
    return visit.page("new_population", populations=populations[::-1], form=form, wrong=wrong)


def _declaration(form: Mapping[str, str]) -> JsonObject:
    """Return the fields as REST takes them, without empty ones. Raises InvalidInput."""
    rules: JsonObject = {name: form[name].strip() for name in TEXTS if form.get(name, "").strip()}
    for name in ("name", "label", "domain", "lifetime_epsilon"):
        if name not in rules:
            raise InvalidInput(f"The field '{name.replace('_', ' ')}' is empty; a population needs it.")
    for name in ("max_examples_per_unit", "retention_days"):
        try:
            rules |= {name: whole_of(form[name].strip())} if form.get(name, "").strip() else {}
        except BadSpelling:
            raise InvalidInput(f"The field '{name.replace('_', ' ')}' is a whole number, such as 5.") from None
    audiences = [one.strip() for one in form.get("audiences", "").split(",") if one.strip()]
    return rules | {"audiences": audiences, "four_eyes": form.get("four_eyes") == "yes"}


@router.get("/new/{name}")
def choose_file(name: str, visit: Owner) -> Response:
    """Render the form for a file of labels."""
    ctx = services(visit)
    return _file_form(visit, ctx.database.read("page.new.file", lambda c: ctx.populations.get(c, name)))


@router.post("/new/{name}", dependencies=[FILE_FORM])
def take_file(name: str, visit: Owner) -> Response:
    """Check a file of labels as `check` does; if nothing in it is refused, take its rows into a new open batch."""
    ctx, data, id_list = services(visit), visit.files.get("labels", b""), visit.files.get("examples", b"")
    population = ctx.database.read("page.new.file", lambda c: ctx.populations.get(c, name))
    try:
        needs(text_need(len(data) + len(id_list)))
        names = _header(data)
        columns = _columns(names, population, visit.form)
        if columns is None:
            return _file_form(visit, population, names=names)
        report = _checked(population, columns, data, id_list)
        if report.refused:
            return _file_form(visit, population, names=names, report=report)
        batch = _taken(visit, population, columns, data, id_list)
    except (InvalidInput, Conflict) as error:
        return _file_form(visit, population, wrong=str(error))
    says = _without_options(report.says)
    return visit.page("new_checked", population=population, batch=batch, columns=columns, report=report, says=says)


def _file_form(
    visit: Visit,
    population: Population,
    names: list[str] | None = None,
    report: Checked | None = None,
    wrong: str | None = None,
) -> Response:
    """Render the form; `names`: columns of a file that was sent, of which nothing was kept."""
    refused, says = map(_without_options, ([], []) if report is None else (report.refused, report.says))
    about = {"population": population, "names": names or [], "form": visit.form, "report": report, "wrong": wrong}
    return visit.page("new_file", once=secrets.token_hex(12), refused=refused, says=says, **about)


def _header(data: bytes) -> list[str]:
    """Return the names of a CSV file's columns. Raises InvalidFile."""
    if not data:
        raise InvalidFile("Choose a CSV file with a header, and with one row for each example.")
    if is_parquet(BytesIO(data)):
        raise InvalidFile("This is a Parquet file. Save its table as CSV; REST and the commands take Parquet too.")
    refuse_other_files(data[:4], "the file")
    names = header_of(BytesIO(data))
    if len(names) < 2:
        separated = other_separator(names[0], "the file") if names else None
        raise InvalidFile(separated or "The file has one column; it needs ids and labels, with a comma between them.")
    return names


def _columns(names: list[str], population: Population, form: Mapping[str, str]) -> dict[str, str] | None:
    """Return the columns with ids and labels: those that were chosen, else by their names. None if that leaves a
    choice. Raises InvalidFile."""
    label = form.get("label_column") or population.label
    others = [name for name in names if name not in (label, population.unit.unit_column)]
    usual = others if len(others) == 1 else [name for name in USUAL_IDS if name in others]
    column = form.get("id_column") or next(iter(usual), "")
    if column not in names or label not in names or column == label:
        return None
    if spells_number(label) or label in population.domain.names:
        raise InvalidFile("The first line of the file looks like a row. Put the names of its columns above it.")
    return {ID: column, LABEL: label}


def _checked(population: Population, columns: Mapping[str, str], data: bytes, id_list: bytes) -> Checked:
    """Raises InvalidFile and its kinds."""
    unit, most = population.unit.unit_column, population.unit.max_examples
    units = [] if unit is None else [unit]
    table = _table(data, [*columns.values(), *([] if id_list else units)], "the file")
    examples = _table(id_list, [columns[ID], *units], "the list of examples") if id_list else None
    rules = (population.missing_label, population.out_of_domain)
    return check(FileOfLabels(table, columns[ID], columns[LABEL], population.domain, unit, most, examples, *rules))


def _table(data: bytes, columns: list[str], what: str) -> Any:
    return read_table(BytesIO(data), text_columns=None, columns=columns, name=what)


def _taken(visit: Visit, population: Population, columns: Mapping[str, str], data: bytes, id_list: bytes) -> str:
    """Open a batch and take the rows in, as REST does; the same form sent twice opens one. Return the batch. Raises
    errors of intake; then the batch is discarded."""
    ctx, presence = services(visit), ID_LIST if id_list else PUBLIC
    opening, listing, labels = (_call(visit, step, data + id_list) for step in ("open", "examples", "labels"))

    def store(connection: Connection) -> str:
        reply = opening.once(connection, lambda: (201, ctx.batches.create(connection, population, presence).as_json()))
        return str(reply[1]["id"])

    batch = ctx.database.write("batch.create", store)
    try:
        if id_list:
            ctx.intake.put_examples(batch, _rows(ctx, id_list, columns), listing)
        ctx.intake.add_labels(batch, _rows(ctx, data, columns), labels, owner=True)
    except LabelDPError:
        ctx.intake.discard(batch)
        raise
    return batch


def _rows(ctx: Services, data: bytes, columns: Mapping[str, str]) -> Callable[..., Chunks]:
    def chunks(fields: tuple[str, ...], classes: bool = False, usual: Mapping[str, str] | None = None) -> Chunks:
        return CSV.chunks(Whole(data), fields, ctx.home.spill, classes=classes, columns=columns, usual=usual)

    return chunks


def _call(visit: Visit, step: str, body: bytes, batch: str | None = None) -> IdempotentCall:
    """Return the call of one step of a form, which may be sent twice."""
    once, path = visit.form.get("once"), f"{visit.request.url.path} {step}"
    return services(visit).idempotency.call(visit.caller.key_id, once and f"{once}-{step}", path, lambda: body, batch)


def _without_options(sentences: list[str]) -> list[str]:
    """Return sentences of `check` for somebody who has no command line."""
    for option, words in WORDS.items():
        sentences = [sentence.replace(option, words) for sentence in sentences]
    return sentences


@router.get("/batches/{name}/release")
def plan_release(name: str, visit: Owner, epsilon: Text = "", e: Text = "", id_column: Text = "") -> Response:
    """Render what an ε would give for this batch, what it costs, and how to go on. Nothing is charged."""
    ctx = services(visit)
    batch, population, rows, account, room = _subject(ctx, name)
    most = most_of_one_charge(ctx)
    room = room if most is None else min(room, most)
    about: dict[str, Any] = {"batch": batch, "population": population, "rows": rows, "room": room, "fits": False}
    about |= NOTHING | {"id_column": id_column, "given": True, "same": None}
    texts = {"population": population.name, "epsilon": epsilon.strip(), "n": str(rows)}
    try:
        usual = min(Epsilon.parse(USUAL[0]), room) if room.nano else USUAL[0]
        texts["epsilon"] = texts["epsilon"] or (EPSILONS.at(e) if e else str(usual))
        cost = Epsilon.parse(texts["epsilon"], positive=True)
        about |= {
            "meaning": in_words(cost),
            "cost": cost_of(cost, account, population.name, most),
            "fits": cost <= room,
        }
        of_batch: dict[str, Any] = {"n": rows} if batch.state == "open" else {"batch": batch.id}
        about |= foreseen(visit, population.name, Plan(epsilon=[texts["epsilon"]], **of_batch))
        about["same"] = commands(population, batch, texts["epsilon"], id_column)
    except InvalidInput as error:
        about |= {"wrong": str(error), "fits": False}
    return visit.page("release_plan", asked=texts, slider_shown=EPSILONS.placed(texts["epsilon"]), **about)


@router.post("/batches/{name}/release", dependencies=[FORM])
def release(name: str, visit: Owner) -> Response:
    """Render what would be charged; with `sure` seal the batch if it is open, and ask for its release."""
    ctx, form, epsilon = services(visit), visit.form, visit.form.get("epsilon", "")
    seal, ask = (_call(visit, step, epsilon.encode(), name) for step in ("seal", "ask"))
    earlier = ctx.database.read("page.release.seen", ask.earlier)
    if earlier is not None:
        return _to_release(visit, str(earlier[1]["id"]))
    batch, population, rows, account, _ = _subject(ctx, name)
    members: JsonObject = {"epsilon": epsilon, "additional_release": form.get("additional") == "yes"}
    wish = ctx.message.wish(population, as_model(members, Release))
    charge = ctx.message.plan(replace(batch, n=rows), population, wish)
    split, about_charge = charge.split, (population, batch.id, charge.split, charge.details)
    try:
        ctx.database.read("page.release.check", lambda c: ctx.ledger.check(c, *about_charge, eyes=True))
    except BudgetExceeded as error:
        wrong: str | None = error.detail
    else:
        wrong = None
        if form.get("sure") == "yes":
            if batch.state == "open":
                ctx.sealer.seal(batch.id, visit.caller.actor, seal)
            _, reply = ctx.work.ask(ctx.message, batch.id, wish, visit.caller.actor, ask)
            ctx.worker.wake()
            return _to_release(visit, str(reply["id"]))
    uses = ctx.database.read("page.release.uses", lambda c: ctx.work.of_batch(c, batch.id))
    about: dict[str, Any] = {"batch": batch, "population": population, "rows": rows, "account": account, "wrong": wrong}
    about |= {"before": [(use.id, ctx.work.family(use).noun) for use in uses if use.state not in ENDED]}
    about |= {"once": secrets.token_hex(12), "epsilon": epsilon, "id_column": form.get("id_column", "")}
    about |= {
        "waits": ctx.database.read("page.release.eyes", lambda c: second_person(ctx.ledger.audit, c, population, split))
    }
    return visit.page("release_confirm", split=split, **about)


def _to_release(visit: Visit, name: str) -> Response:
    column = visit.form.get("id_column")
    return visit.go(f"/releases/{name}" + (f"?{urlencode({'id_column': column})}" if column else ""))


@router.post("/batches/{name}/discard", dependencies=[FORM])
def discard(name: str, visit: Owner) -> Response:
    """Ask whether an open batch is to go; with `sure` discard it, as `DELETE /v1/batches/{batch}`."""
    ctx = services(visit)
    batch, population, rows, _, _ = _subject(ctx, name)
    if visit.form.get("sure") != "yes":
        return visit.page("discard", batch=batch, population=population, rows=rows)
    ctx.intake.discard(name)
    return visit.go(f"/populations/{population.id}", "discarded")


def _subject(ctx: Services, name: str) -> tuple[Batch, Population, int, Account, Epsilon]:
    """Return a batch that is open or has its labels, its population, number of examples, account, and the largest ε
    that may be charged. Raises NotFound, Conflict."""

    def look(connection: Connection) -> tuple[Batch, Population, int, Account, Epsilon]:
        batch, population = ctx.batches.get(connection, name)
        parts = ctx.batches.records(connection, name)
        if batch.presence == ID_LIST:
            parts = ctx.batches.segments(connection, name, EXAMPLES)
        if batch.state != "open":
            require_sealed(batch)
        rows = batch.n or max(1, sum(part.rows for part in parts))
        account = ctx.ledger.account(connection, population, name)
        return batch, population, rows, account, ctx.ledger.left(connection, population, name)

    return ctx.database.read("page.release.batch", look)


def commands(population: Population, batch: Batch, epsilon: str, id_column: str) -> dict[str, list[str]]:
    """Return lines of the command and of Python that publish the same from a file; no Python where a second person
    approves or ids have a prefix. Paths are examples, and so is an id column that is not known."""
    rules, prefix, eyes = _rules(population), batch.id_prefix, population.four_eyes
    column, out = id_column or "ID_COLUMN", f"{population.name}.message.parquet"
    options = [["--labels", "labels.csv"], ["--id-column", column]]
    options += [["--examples", "examples.csv"]] if batch.presence == ID_LIST else []
    for name, value in rules.items():
        flag = option_of(name, PopulationAsked.model_fields[name])
        values = value if isinstance(value, list) else [value]
        options += [[flag]] if value is True else [[flag, str(one)] for one in values]
    options += [["--id-prefix", prefix]] if prefix else []
    options += [["--as", "YOUR NAME"]] if eyes else []
    options += [["--epsilon", epsilon], ["--out", out]]
    command = " \\\n  ".join(["labels-party privatize", *map(shlex.join, options)]).split("\n")
    arguments = {"id": column, "label": population.label, "domain": rules["domain"], "epsilon": epsilon}
    arguments |= {"budget": rules["lifetime_epsilon"], "population": population.name, "out": out}
    arguments |= {"examples": "examples.csv"} if batch.presence == ID_LIST else {}
    arguments |= {name: value for name, value in rules.items() if name not in OF_PYTHON}
    lines = [f"    {name}={json.dumps(value, ensure_ascii=False)}," for name, value in arguments.items()]
    python = ["import labels_party", "", "message = labels_party.privatize(", '    "labels.csv",', *lines, ")"]
    return {"command": command, "python": [] if prefix or eyes else python}


def _rules(population: Population) -> JsonObject:
    """Return the declared members of a population that are not the default of their option."""
    domain, unit, fields = population.domain, population.unit, PopulationAsked.model_fields
    text = ",".join(domain.names) if domain.names else "DOMAIN.csv" if domain.listed else str(domain).removesuffix(":1")
    members = population.rules() | {"name": population.name, "domain": text}
    members |= {"unit_column": unit.unit_column, "max_examples_per_unit": unit.max_examples}
    usual = {name: field.get_default(call_default_factory=True) for name, field in fields.items()}
    usual |= {"audiences": [DEFAULT_AUDIENCE], "out_of_domain": "refuse" if domain.names else "clip"}
    return {name: members[name] for name in fields if members[name] not in (None, usual[name])}
