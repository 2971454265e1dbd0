"""`rectangle` and `linear-model`: signed, private answers made of labels and of the labels party's own features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

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
from labels_party.cli.predictors import feature_of
from shared.errors import InvalidInput
from shared.service.cli import emit, progress, table

if TYPE_CHECKING:
    from labels_party.answers.own_features import Wish
    from labels_party.offline_answers import LabelsInFile

Total = Annotated[str, typer.Option(help="ε of the whole answer; every example of the batch is charged.")]
Out = Annotated[FilePath | None, typer.Option(help="Where the signed answer goes (.json).")]
Delta = Annotated[
    str, typer.Option(help="The most it may take of the population's lifetime δ; what it needs is charged.")
]
Features = Annotated[
    FilePath | None, typer.Option(help="Table of features (Parquet or CSV); default the one stored before.")
]
IdColumn = Annotated[str, typer.Option(help="Column with example ids of --features (and of --labels).")]
Plan = Annotated[bool, typer.Option("--plan", help="Only say what it would cost and do; nothing is charged.")]


@app.command()
def rectangle(
    epsilon: Total,
    threshold: Annotated[str, typer.Option(help="Examples with labels of at least that are positive.")],
    feature: Annotated[list[str], typer.Option(help="NAME=LOW:HIGH, a number and its public range; repeatable.")],
    out: Out = None,
    delta: Delta = "0",
    bits: Annotated[int, typer.Option(min=1, max=32, help="A range is divided into 2^bits places.")] = 16,
    method: Annotated[
        str, typer.Option(help="ranks (pure ε where no δ is given, fewest examples) or slices (needs a δ).")
    ] = "ranks",
    slice_: Annotated[
        int | None, typer.Option("--slice", min=1, help="Positive examples a side is looked for among.")
    ] = None,
    features: Features = None,
    id_column: IdColumn = "example_id",
    batch: BatchId = None,
    labels: Labels = None,
    label_column: LabelColumn = None,
    domain: LabelDomain = None,
    population: PopulationName = None,
    budget: Budget = None,
    budget_delta: BudgetDelta = None,
    examples: Examples = None,
    missing_label: MissingLabel = None,
    audience: Audiences = None,
    additional_release: AdditionalRelease = False,
    plan: Plan = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Answer with an interval of every feature in which examples of large labels lie, signed and charged."""
    from labels_party.answers.rectangles import RectangleWish

    wish = RectangleWish.parse(
        epsilon=epsilon,
        threshold=threshold,
        features=[feature_of(text) for text in feature],
        delta=delta,
        bits=bits,
        method=method,
        slice=slice_,
        additional_release=additional_release,
    )
    rules = (label_column, domain, population, budget, budget_delta, examples, missing_label, audience)
    _answer(wish, batch_or_labels(batch, labels, id_column, *rules), features, id_column, out, plan, force, as_json)


@app.command("linear-model")
def linear_model(
    epsilon: Total,
    feature: Annotated[list[str], typer.Option(help="NAME=LOW:HIGH for numbers, NAME=a,b,c for texts; repeatable.")],
    out: Out = None,
    delta: Delta = "0",
    rule: Annotated[
        str, typer.Option(help="Which examples come first: uniform, easiest, hardest or largest-prediction.")
    ] = "uniform",
    steps: Annotated[int | None, typer.Option(min=1, help="How many minibatches; by default by n.")] = None,
    minibatch: Annotated[int | None, typer.Option(min=1, help="Examples of one; by default by n.")] = None,
    clip: Annotated[int, typer.Option(help="The most one example may contribute to a gradient (L1).")] = 2,
    rate: Annotated[
        str | None, typer.Option(help="Learning rate; by default 1, or 0.25 where examples are chosen.")
    ] = None,
    features: Features = None,
    id_column: IdColumn = "example_id",
    batch: BatchId = None,
    labels: Labels = None,
    label_column: LabelColumn = None,
    domain: LabelDomain = None,
    population: PopulationName = None,
    budget: Budget = None,
    budget_delta: BudgetDelta = None,
    examples: Examples = None,
    missing_label: MissingLabel = None,
    audience: Audiences = None,
    additional_release: AdditionalRelease = False,
    plan: Plan = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Answer with private weights of features, trained once through the labels of a batch, signed and charged."""
    from labels_party.answers.linear_models import LinearModelWish

    wish = LinearModelWish.parse(
        epsilon=epsilon,
        features=[feature_of(text) for text in feature],
        delta=delta,
        rule=rule,
        steps=steps,
        minibatch=minibatch,
        clip=clip,
        rate=rate,
        additional_release=additional_release,
    )
    rules = (label_column, domain, population, budget, budget_delta, examples, missing_label, audience)
    _answer(wish, batch_or_labels(batch, labels, id_column, *rules), features, id_column, out, plan, force, as_json)


def _answer(
    wish: Wish,
    of: str | LabelsInFile,
    features: FilePath | None,
    id_column: str,
    out: FilePath | None,
    plan: bool,
    force: bool,
    as_json: bool,
) -> None:
    from labels_party.offline_features import FeatureJob, answered, planned

    if plan:
        if not isinstance(of, str) or features is not None or out is not None:
            raise InvalidInput("--plan looks at a sealed batch and the features stored with it: name it with --batch.")
        told = planned(services(existing=True), of, wish)
        emit(told, as_json, lambda: _show_plan(told))
        return
    if out is None:
        raise InvalidInput("Say where the signed answer goes with --out, or look first with --plan.")
    with progress(wish.kind, as_json) as report:
        party = services(existing=isinstance(of, str))
        result = answered(party, FeatureJob(of, features, id_column, wish, out, force), report)
    emit(result, as_json, lambda: show_answer(result))


def _show_plan(told: dict[str, Any]) -> None:
    cost = told["epsilon"]
    said = told["parameters"] | told["facts"]
    rows = [[name, str(value)] for name, value in said.items() if name != "features"]
    table(
        f"A {told['kind']} of batch {told['batch']}", ["", ""], [["ε", f"{cost['total']}; δ = {cost['delta']}"], *rows]
    )
