"""What an answer is made of, on the command line: a sealed batch, or a file of labels that becomes one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from labels_party.cli.app import FilePath
from shared.errors import InvalidInput

if TYPE_CHECKING:
    from labels_party.offline_answers import LabelsInFile

BatchId = Annotated[str | None, typer.Option(help="Id of a sealed batch; or else --labels.")]
Labels = Annotated[FilePath | None, typer.Option(help="Parquet or CSV file of labels, sealed as a batch.")]
LabelColumn = Annotated[str | None, typer.Option(help="With --labels: its column with labels.")]
LabelDomain = Annotated[str | None, typer.Option(help="With --labels: LO:HI[:STEP], or a file.")]
PopulationName = Annotated[str | None, typer.Option(help="With --labels: its name; made on first use.")]
Budget = Annotated[str | None, typer.Option(help="With --labels: lifetime ε per example of the population.")]
BudgetDelta = Annotated[
    str | None, typer.Option(help="With --labels: lifetime δ per example of the population; 0: only pure ε.")
]
Examples = Annotated[FilePath | None, typer.Option(help="With --labels: file that lists all example ids.")]
MissingLabel = Annotated[str | None, typer.Option(help="Label of listed examples that have none.")]
Audiences = Annotated[list[str] | None, typer.Option(help="Who may read the answer; repeatable.")]
AdditionalRelease = Annotated[
    bool, typer.Option("--additional-release", help="Charge on top of what these examples carry already.")
]


def batch_or_labels(
    batch: str | None,
    labels: FilePath | None,
    id_column: str | None,
    label_column: str | None,
    domain: str | None,
    population: str | None,
    budget: str | None,
    budget_delta: str | None,
    examples: FilePath | None,
    missing_label: str | None,
    audience: list[str] | None,
    out_of_domain: str = "clip",
) -> str | LabelsInFile:
    """The id of a batch, or the file with the rules of its population. Raises InvalidInput and its kinds."""
    from labels_party.offline_answers import LabelsInFile
    from labels_party.options import parse_domain, parse_population

    if labels is None:
        rules = (label_column, domain, population, budget, budget_delta, examples, missing_label, audience)
        if batch is None:
            raise InvalidInput("Name a sealed batch with --batch, or a file of labels with --labels.")
        if any(value is not None for value in rules):
            raise InvalidInput("A sealed batch has its population's rules already; give them with --labels only.")
        return batch
    if batch is not None:
        raise InvalidInput("Name a sealed batch with --batch, or a file of labels with --labels.")
    if any(value is None for value in (id_column, label_column, domain, population, budget)):
        raise InvalidInput("--labels needs --id-column, --label-column, --domain, --population and --budget.")
    declared = parse_population(
        str(population),
        str(label_column),
        parse_domain(str(domain)),
        str(budget),
        out_of_domain=out_of_domain,
        missing_label=missing_label,
        audiences=audience,
        lifetime_delta=budget_delta or "0",
    )
    return LabelsInFile(labels, str(id_column), str(label_column), declared, examples)
