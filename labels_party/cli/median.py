"""`median`: one signed, private value with about a third of the labels on either side."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from labels_party.cli.app import FilePath, Force, Json, app, services
from labels_party.cli.calibrate import show_answer
from shared.errors import InvalidInput
from shared.service.cli import emit, progress


@app.command()
def median(
    epsilon: Annotated[str, typer.Option(help="ε of this median; the whole batch is charged.")],
    out: Annotated[FilePath, typer.Option(help="Where the signed median goes (.json).")],
    delta: Annotated[str, typer.Option(help="δ of this median, of the population's lifetime δ; by slices only.")] = "0",
    method: Annotated[
        str, typer.Option(help="ranks (pure ε, fewer labels), slices (needs a δ), or auto: slices if a δ is given.")
    ] = "auto",
    batch: Annotated[str | None, typer.Option(help="Id of a sealed batch; or else --labels.")] = None,
    labels: Annotated[FilePath | None, typer.Option(help="Parquet or CSV file of labels, sealed as a batch.")] = None,
    id_column: Annotated[str | None, typer.Option(help="With --labels: its column with example ids.")] = None,
    label_column: Annotated[str | None, typer.Option(help="With --labels: its column with labels.")] = None,
    domain: Annotated[str | None, typer.Option(help="With --labels: LO:HI[:STEP], or a file.")] = None,
    population: Annotated[str | None, typer.Option(help="With --labels: its name; made on first use.")] = None,
    budget: Annotated[str | None, typer.Option(help="With --labels: lifetime ε per example of the population.")] = None,
    budget_delta: Annotated[
        str | None, typer.Option(help="With --labels: lifetime δ per example of the population; 0: only pure ε.")
    ] = None,
    examples: Annotated[FilePath | None, typer.Option(help="With --labels: file that lists all example ids.")] = None,
    missing_label: Annotated[str | None, typer.Option(help="Label of listed examples that have none.")] = None,
    audience: Annotated[list[str] | None, typer.Option(help="Who may read the answer; repeatable.")] = None,
    additional_release: Annotated[
        bool, typer.Option("--additional-release", help="Charge on top of what these examples carry already.")
    ] = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Answer with one approximate median of the labels, signed and charged to the ledger."""
    from labels_party.answers.medians import MedianWish
    from labels_party.offline_answers import LabelsInFile
    from labels_party.offline_medians import MedianJob
    from labels_party.offline_medians import median as run_job
    from labels_party.options import parse_domain, parse_population

    wish = MedianWish.parse(epsilon=epsilon, delta=delta, method=method, additional_release=additional_release)
    of: Any = batch
    with_labels = (id_column, label_column, domain, population, budget)
    if (batch is None) == (labels is None):
        raise InvalidInput("Name a sealed batch with --batch, or a file of labels with --labels.")
    if labels is not None:
        if any(value is None for value in with_labels):
            raise InvalidInput("--labels needs --id-column, --label-column, --domain, --population and --budget.")
        declared = parse_population(
            str(population),
            str(label_column),
            parse_domain(str(domain)),
            str(budget),
            missing_label=missing_label,
            audiences=audience,
            lifetime_delta=budget_delta or "0",
        )
        of = LabelsInFile(labels, str(id_column), str(label_column), declared, examples)
    elif any(value is not None for value in (*with_labels, budget_delta, examples, missing_label, audience)):
        raise InvalidInput("A sealed batch has its population's rules already; give them with --labels only.")
    with progress("median", as_json) as report:
        result = run_job(services(existing=labels is None), MedianJob(of, wish, out, force), report)
    emit(result, as_json, lambda: show_answer(result))
