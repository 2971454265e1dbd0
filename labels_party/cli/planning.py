"""`plan` and `budget`: what an ε would buy, and what has been spent."""

from __future__ import annotations

import datetime as dt
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from label_dp.cli.commands import command
from label_dp.cli.layout import number
from label_dp.cli.output import emit, say, table
from label_dp.cli.party_commands import Force, Json
from label_dp.errors import InvalidInput
from labels_party.cli.app import app, services

if TYPE_CHECKING:
    from label_dp.schemas.plan import Plan
    from label_dp.schemas.replies import PlanTwoValues

# what a mechanism is judged by, and what the table calls it
OF_NUMBERS = {"expected_model_error": "expected model error"}
OF_CLASSES = {"share_of_information": "share of information", "labels_without_noise": "labels without noise"}


@command(app)
def plan(
    *,
    population: Annotated[str | None, typer.Option(help="Name or id of the population; or else --domain.")] = None,
    domain: Annotated[
        str | None, typer.Option(help="In place of a population: the domain of one that is not declared yet.")
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="With --domain: its lifetime ε; default the largest --epsilon.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Also as a page with its curve, to keep or print (.html).")] = None,
    force: Force = False,
    asked: Plan,
    as_json: Json = False,
) -> None:
    """What each mechanism would give at each ε, from public or already private facts only, and which to take.

    With --domain and --n nothing has to exist yet: no home, no population, no file.
    """
    from labels_party.planning import question, undeclared

    if (population is None) == (domain is None) or (budget is not None and domain is None):
        raise InvalidInput("Name a --population, or the --domain of one that is not declared yet, with its --budget.")
    if domain is not None:
        from labels_party.files.inputs import undeclared_population

        rules = undeclared_population(domain, budget, asked.epsilon)
        wanted, name = undeclared(rules, asked), f"with domain {domain}, not declared yet"
    else:
        assert population is not None
        wanted, name = question(services(existing=True), population, asked), population
    if out is None:
        result = wanted.answer()
    else:
        from labels_party.pages.report import plan_report

        result = plan_report(wanted, name, f"{dt.datetime.now(dt.UTC):%Y-%m-%d}", out, force=force)

    def human() -> None:
        classes = any("share_of_information" in m for m in result["mechanisms"])
        figures = OF_CLASSES if classes else OF_NUMBERS
        rows = [
            [
                " ".join([m["mechanism"], *(f"{name}={value}" for name, value in m["options"].items())]),
                m["epsilon"]["total"],
                m["epsilon"]["prior"],
                m["epsilon"]["randomize"],
                number(m["outputs"]),
                number(m["expected_label_loss"]),
                *(number(m[figure]) for figure in figures),
                f"{m['flip_probability']:.4f}",
            ]
            for m in result["mechanisms"]
        ]
        table(
            f"n = {result['n']:,}, judged under the prior: {result['prior']}",
            [
                "mechanism",
                "ε",
                "ε prior",
                "ε randomize",
                "outputs",
                "expected label loss",
                *figures.values(),
                "flip probability",
            ],
            rows,
        )
        if result["events"]:
            say(f"Labels: {result['events']}.")
        if result["clip"]:
            c = result["clip"]
            where = c["domain"].get("range") or f"{c['domain']['values'][0]} to {c['domain']['values'][-1]}"
            say(f"ε {c['epsilon']} of each buys clipping at {':'.join(c['quantiles'])}; by that prior at {where}.")
            note = f"; {c['note']}" if c["note"] else ""
            say(f"  They miss by {number(c['rank_error'])} labels or fewer, 19 times in 20{note}.")
        if result["left_out"]:
            say(f"{result['left_out']}.")
        for unused in result["unused"]:
            say(unused)
        if result["two_values"]:
            _show_worth(result["n"], result["two_values"])
        for r in result["recommendations"]:
            say(f"ε = {r['epsilon']}: auto would take {r['why']}.")
            if r["epsilon_left"] is not None and (population or budget):
                say(f"  Of the lifetime ε {r['epsilon_left']} would be left.")
        below = result["sums_below"]
        if below is not None and any(float(r["epsilon"]) < below for r in result["recommendations"]):
            say(
                f"Below ε {below:.2g} or so a model of sums should be better than one of any message: for it a "
                f"features party sends {asked.codes} public codes of its features, and is no longer feature-oblivious."
            )
        if result["people"]:
            p = result["people"]
            say(f"Over all label columns one {p['person']} of {p['people']} has ε {p['epsilon_left']} left.")
        say(f"{'Judged by the' if classes else 'Model error:'} {result['model_error_rule']}.")

    emit(result, as_json, human)


def _show_worth(n: int, result: PlanTwoValues) -> None:
    rows_at = result["worth"]
    rows = [
        [
            w["epsilon"],
            f"{w['flip_probability']:.4f}",
            r["rate"],
            number(r["rows_without_noise"]),
            number(r["rarer_without_noise"]),
            "any" if r["standard_error"] is None else number(r["standard_error"]),
        ]
        for w in rows_at
        for r in w["rates"]
    ]
    heads = ["ε", "flip probability", f"rate of {rows_at[0]['value']}", "rows without noise", "of the rarer value"]
    table(f"what {n:,} rows are worth; rates: {result['rates']}", [*heads, "± rate"], rows)
    for w in rows_at:
        for warning in w["warnings"]:
            say(warning)
        cost, error = w["prior_epsilon"], w["prior_standard_error"]
        if error is not None and all(error < (r["standard_error"] or math.inf) for r in w["rates"]):
            bought = f"ε {cost} of {w['epsilon']} (--prior estimate --prior-epsilon {cost})"
            say(f"A prior for {bought} tells the overall rate to ±{number(error)}, better than the message does.")


@app.command()
def budget(
    population: Annotated[str | None, typer.Option(help="Name or id; default all populations.")] = None,
    as_json: Json = False,
) -> None:
    """What each batch has spent of its population's lifetime ε."""
    party = services(existing=True)

    def look(connection: Any) -> list[dict[str, Any]]:
        found = [party.populations.get(connection, population)] if population else party.populations.list(connection)
        return [party.ledger.report(connection, p) for p in found]

    reports = party.database.read("budget.look", look)

    def human() -> None:
        for r in reports:
            rows = [
                [b["batch"], b["state"], number(b["examples"]), b["epsilon_spent"], b["epsilon_left"]]
                for b in r["batches"]
            ]
            title, heads = f"{r['name']}: lifetime ε {r['epsilon_lifetime']}", ["batch", "state", "examples"]
            heads += ["ε spent", "ε left"]
            if r["delta_lifetime"] != "0":
                title, heads = f"{title} and δ {r['delta_lifetime']}", [*heads, "δ spent", "δ left"]
                rows = [[*row, b["delta_spent"], b["delta_left"]] for row, b in zip(rows, r["batches"], strict=True)]
            unit = r["unit"]
            if r["epsilon_per_unit_at_most"] is not None:
                spent, lifetime = r["epsilon_per_unit_at_most"], r["epsilon_per_unit_lifetime"]
                together = f"{r['name']}: all labels of one {unit['column']} together have spent ε {spent} at most"
                say(f"{together}, of {lifetime} ({unit['max_examples']:,} examples each).")
            if r["people"]:
                p = r["people"]
                say(
                    f"{r['name']}: one {p['person']} of {p['people']} has ε {p['epsilon_left']} left for a new batch, "
                    f"of {p['epsilon_lifetime']} over all label columns (labels-party people show {p['people']})."
                )
            table(f"{title} per example", heads, rows)

    emit(reports, as_json, human)
