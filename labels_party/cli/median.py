"""`median`: one signed, private value with about a third of the labels on either side."""

from __future__ import annotations

from typing import Annotated

import typer

from labels_party.cli.answers import show_answer
from labels_party.cli.app import FilePath, Force, Json, app, services
from labels_party.cli.batch_or_labels import (
    AdditionalRelease,
    Audiences,
    BatchId,
    Budget,
    BudgetDelta,
    Examples,
    LabelColumn,
    LabelDomain,
    Labels,
    MissingLabel,
    PopulationName,
    batch_or_labels,
)
from shared.errors import InvalidInput
from shared.service.cli import emit, progress


@app.command()
def median(
    epsilon: Annotated[str, typer.Option(help="ε of this median; the whole batch is charged.")],
    out: Annotated[FilePath, typer.Option(help="Where the signed median goes (.json).")],
    delta: Annotated[str, typer.Option(help="δ of this median, of the population's lifetime δ; by slices only.")] = "0",
    method: Annotated[
        str,
        typer.Option(
            help="ranks (pure ε, fewer labels), slices (with a δ beyond 128 values), auto: slices if a δ is given."
        ),
    ] = "auto",
    batch: BatchId = None,
    labels: Labels = None,
    id_column: Annotated[str | None, typer.Option(help="With --labels: its column with example ids.")] = None,
    label_column: LabelColumn = None,
    domain: LabelDomain = None,
    population: PopulationName = None,
    budget: Budget = None,
    budget_delta: BudgetDelta = None,
    examples: Examples = None,
    missing_label: MissingLabel = None,
    audience: Audiences = None,
    additional_release: AdditionalRelease = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Answer with one approximate median of the labels, signed and charged to the ledger."""
    from labels_party.answers.medians import MedianWish
    from labels_party.offline_medians import MedianJob
    from labels_party.offline_medians import median as run_job

    wish = MedianWish.parse(epsilon=epsilon, delta=delta, method=method, additional_release=additional_release)
    rules = (label_column, domain, population, budget, budget_delta, examples, missing_label, audience)
    of = batch_or_labels(batch, labels, id_column, *rules)
    if labels is None and id_column is not None:
        raise InvalidInput("A sealed batch has its ids already; give --id-column with --labels only.")
    with progress("median", as_json) as report:
        result = run_job(services(existing=labels is None), MedianJob(of, wish, out, force), report)
    emit(result, as_json, lambda: show_answer(result))
