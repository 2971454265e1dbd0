"""`audit-privacy`: lower bounds of ε on made-up labels, or of a published message by canaries."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from label_dp.cli.numbers import real, whole
from label_dp.cli.output import emit, progress, say, table
from label_dp.cli.panels import OFFICER
from label_dp.cli.party_commands import Force, Json
from label_dp.errors import InvalidInput
from labels_party.cli.app import app, services

LIMIT = (
    "A bound above ε shows that more leaks than was charged, wrongly in at most {error:.2g} of all audits. A bound "
    "below ε shows that this attack found no leak, never that none is there."
)


@app.command("audit-privacy", rich_help_panel=OFFICER)
def audit_privacy(
    population: Annotated[str | None, typer.Option(help="Whose configuration is audited, on made-up labels.")] = None,
    mechanism: Annotated[
        list[str] | None, typer.Option(help="Mechanism to audit, once for each; default all that it offers.")
    ] = None,
    epsilon: Annotated[str, typer.Option(help="ε of each release; nothing of it is charged here.")] = "1",
    trials: Annotated[
        int, typer.Option(parser=whole("--trials", 10, 10_000_000), metavar="INTEGER", help="Rows of each label.")
    ] = 30_000,
    prior_trials: Annotated[
        int,
        typer.Option(
            parser=whole("--prior-trials", 1, 100_000), metavar="INTEGER", help="Releases of each label with a prior."
        ),
    ] = 60,
    confidence: Annotated[
        float, typer.Option(parser=real("--confidence", 0, 1), metavar="NUMBER", help="Of all bounds together.")
    ] = 0.95,
    release: Annotated[str | None, typer.Option(help="Published release to audit, with --canaries.")] = None,
    canaries: Annotated[Path | None, typer.Option(help="CSV of the canaries' ids and made-up labels.")] = None,
    make_canaries: Annotated[
        int | None,
        typer.Option(
            parser=whole("--make-canaries", 1, 1_000_000),
            metavar="INTEGER",
            help="Write so many canaries for --population to --canaries, to be sent in with the labels of a batch.",
        ),
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Bound the ε of releases from below, as an attacker would: on made-up labels, at no ε, or by canaries.

    A labels party of its own, with the population's configuration, is asked over HTTP and removed at the end. Exit code
    0: every bound is consistent with ε, and each planted leak was found; else 1.
    """
    from labels_party.companions import privacy_audit as audits

    if (population is None) == (release is None) or bool(release or make_canaries) != (canaries is not None):
        raise InvalidInput(
            "Name a --population to audit, or one with --make-canaries and the file --canaries, or a --release with "
            "--canaries."
        )
    party = services(existing=True)
    if make_canaries is not None and population is not None and canaries is not None:
        made_up = audits.make_canaries(party, population, make_canaries, canaries, force)
        emit(made_up, as_json, lambda: say(f"{canaries}: {make_canaries:,} canaries, sha256 {made_up['sha256']}"))
        return
    if release is not None and canaries is not None:
        result = audits.audit_canaries(party, release, canaries, confidence)
        title = f"{result['release']}: {result['right']} of {result['guesses']} guesses of canaries were right"
        emit(result, as_json, lambda: _show([result], title, confidence))
    else:
        names = tuple(mechanism or ())
        numbers = {"trials": trials, "prior_trials": prior_trials}
        with progress("audit", as_json) as report:
            result = audits.audit_population(
                party, str(population), names, epsilon, report, **numbers, confidence=confidence
            )
        emit(result, as_json, lambda: _show_population(result))
    if result["verdict"] != audits.CONSISTENT:
        raise SystemExit(1)


def _show_population(result: Any) -> None:
    title = f"{result['population']}, domain {result['domain']}: {result['trials']:,} rows of each label"
    _show(result["mechanisms"], title, result["confidence"])
    for name, why in result["not_offered"].items():
        say(f"{name} is not offered: {why}")
    say(f"Not covered: {result['not_covered']}.")


def _show(rows: Any, title: str, confidence: float) -> None:
    heads = ["mechanism", "ε", "at least", "provable", "planted", "found as", "verdict"]
    table(
        title,
        heads,
        [
            [
                *(str(row[name]) for name in ("mechanism", "epsilon", "lower_bound", "largest_provable")),
                str(row["control"]["epsilon"]),
                str(row["control"]["lower_bound"]),
                str(row["verdict"]),
            ]
            for row in rows
        ],
    )
    if any(row["verdict"] == "inconclusive" for row in rows):
        say("Inconclusive: the planted leak was not found, so trials or canaries were too few to find a real one.")
    say(LIMIT.format(error=1 - confidence))
