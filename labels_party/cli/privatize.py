"""`privatize`, `message` and `inspect`: from a file of labels to one message, and what it says."""

from __future__ import annotations

import gc
from typing import Annotated

import typer

from labels_party.cli.app import FilePath, Json, app, services
from labels_party.cli.names import told_apart
from labels_party.cli.show import show_message, show_waiting
from shared.service.cli import emit, progress, warn


@app.command()
def privatize(
    labels: Annotated[FilePath, typer.Option(help="Parquet or CSV file with ids and labels.")],
    id_column: Annotated[str, typer.Option(help="Its column with example ids.")],
    label_column: Annotated[str, typer.Option(help="Its column with labels.")],
    domain: Annotated[str, typer.Option(help="LO:HI[:STEP] (both ends included), or a file with a column 'label'.")],
    epsilon: Annotated[str, typer.Option(help="ε of this release, all parts included.")],
    population: Annotated[str, typer.Option(help="Name of the population; made on first use.")],
    budget: Annotated[str, typer.Option(help="Lifetime ε per example of the population.")],
    out: Annotated[
        FilePath,
        typer.Option(
            help="Where the message goes, say X.parquet; its signed manifest X.parquet.dsse.json and, if any, "
            "its private prior X.prior.parquet are put beside it. None is ever overwritten."
        ),
    ],
    examples: Annotated[
        FilePath | None, typer.Option(help="File that lists all example ids; without it presence is public.")
    ] = None,
    missing_label: Annotated[str | None, typer.Option(help="Label of listed examples that have none.")] = None,
    unit_column: Annotated[
        str | None, typer.Option(help="Column with the person (or other unit) behind each example.")
    ] = None,
    max_examples_per_unit: Annotated[
        int | None,
        typer.Option(
            help="Examples of a unit that keep their label over the population's lifetime; the rest count as missing."
        ),
    ] = None,
    audience: Annotated[list[str] | None, typer.Option(help="Who may read the message; repeatable.")] = None,
    loss: Annotated[str, typer.Option(help="squared, absolute, poisson, or a file with a loss matrix.")] = "squared",
    mechanism: Annotated[
        str,
        typer.Option(
            help="auto (the best for a model, by the private prior, n and ε), rr-on-bins, one-bit, unbiased, balanced, "
            "rr, rr-with-prior, laplace, discrete-laplace, staircase, discrete-staircase or exponential."
        ),
    ] = "auto",
    clip: Annotated[
        str | None,
        typer.Option(help="One bit only: A:B, public clipping ends, or auto (by the prior); default the domain's."),
    ] = None,
    unclipped: Annotated[
        bool, typer.Option("--unclipped", help="Additive noise only: outputs may leave the domain.")
    ] = False,
    tight: Annotated[
        bool, typer.Option("--tight", help="exponential only: scale Δ/ε, still exactly ε, instead of the paper's 2Δ/ε.")
    ] = False,
    prior: Annotated[
        str | None,
        typer.Option(help="estimate, uniform, latest (carried over), a file (label, probability), or a message."),
    ] = None,
    prior_epsilon: Annotated[str, typer.Option(help="auto, theorem7, or the ε that the prior may cost.")] = "auto",
    prior_method: Annotated[str, typer.Option(help="project (Euclidean) or clip (the paper's).")] = "project",
    clip_quantile: Annotated[
        str | None,
        typer.Option(
            help="Clip labels at this quantile (0.95, or 0.05:0.95 for both ends), bought with --clip-epsilon."
        ),
    ] = None,
    clip_epsilon: Annotated[
        str | None, typer.Option(help="Of ε, what the clipping bounds of --clip-quantile cost.")
    ] = None,
    out_of_domain: Annotated[str, typer.Option(help="clip or refuse labels outside the domain.")] = "clip",
    additional_release: Annotated[
        bool, typer.Option("--additional-release", help="Allow, and charge, a further release of the same examples.")
    ] = False,
    four_eyes: Annotated[
        bool, typer.Option("--four-eyes", help="A second person must approve each release before it is charged.")
    ] = False,
    retention_days: Annotated[
        int | None, typer.Option(min=0, help="Labels are purged that many days after publication.")
    ] = None,
    alert_percent: Annotated[
        list[int] | None, typer.Option(help="Alert when that share of the budget is spent; repeatable.")
    ] = None,
    budget_delta: Annotated[
        str,
        typer.Option(help="Lifetime δ per example of the population, for medians and such; 0: only pure ε."),
    ] = "0",
    name: Annotated[str | None, typer.Option("--as", help="Who asks; needed in a four-eyes population.")] = None,
    as_json: Json = False,
) -> None:
    """Turn a file of labels into one signed, privatized message, charged to the ledger."""
    gc.set_threshold(1_000_000)  # what imports make stays: looking for garbage among it is a fifth of their time
    from labels_party.offline import PrivatizeJob
    from labels_party.offline import privatize as run_job
    from labels_party.options import parse_domain, parse_population, parse_request
    from labels_party.release.approvals import COMMAND_LINE, person

    declared = parse_population(
        population,
        label_column,
        parse_domain(domain),
        budget,
        out_of_domain=out_of_domain,
        missing_label=missing_label,
        audiences=audience,
        unit_column=unit_column,
        max_examples_per_unit=max_examples_per_unit,
        four_eyes=four_eyes,
        retention_days=retention_days,
        alert_percent=alert_percent,
        lifetime_delta=budget_delta,
    )
    asked_by = person(name) if name is not None else COMMAND_LINE
    with progress("privatize", as_json) as report:
        party = services()
        request = parse_request(
            party,
            declared,
            epsilon=epsilon,
            mechanism=mechanism,
            loss=loss,
            prior=prior,
            prior_epsilon=prior_epsilon,
            prior_method=prior_method,
            clip=clip,
            unclipped=unclipped,
            tight=tight,
            additional_release=additional_release,
            clip_quantile=clip_quantile,
            clip_epsilon=clip_epsilon,
        )
        job = PrivatizeJob(labels, id_column, label_column, declared, request, out, examples, asked_by)
        result = run_job(party, job, report, warn)
    emit(result, as_json, lambda: show_message(result) if "message" in result else show_waiting(result))


@app.command()
def message(
    release: Annotated[str, typer.Argument(help="Id of a published release.")],
    out: Annotated[FilePath, typer.Option(help="Where its message goes.")],
    as_json: Json = False,
) -> None:
    """Write the message of a published release once more, byte for byte; nothing is charged."""
    from labels_party.offline import finish, write_out

    party = services(existing=True)
    with progress("message", as_json) as report, told_apart(party, release):
        finish(party, release, report)
    result = write_out(party, release, out)
    emit(result, as_json, lambda: show_message(result))


@app.command()
def inspect(
    path: Annotated[
        FilePath,
        typer.Argument(metavar="MESSAGE", help="A message (.parquet) or its folder, or a signed answer (.json)."),
    ],
    labels_key: Annotated[
        FilePath | None, typer.Option(help="Public key to verify with; default this party's own.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Verify a message, or an answer, and show what it says: mechanism, bins, ε split, audiences. Writes nothing."""
    from labels_party.offline import summary
    from shared.message.bundle import verify
    from shared.message.signing import VerifyingKey

    key_path = labels_key if labels_key is not None else services(existing=True).home.public_key_path
    key = VerifyingKey.load(key_path)
    if path.suffix == ".json" and path.is_file():
        from labels_party.cli.answers import show_answer
        from labels_party.offline_answers import described
        from shared.message.answer import read_answer

        told = described(read_answer(path), key) | {"out": str(path), "labels_key": str(key_path), "verified": True}
        emit(told, as_json, lambda: show_answer(told))
        return
    result = summary(verify(path, key, None).manifest) | {"message": str(path), "verified": True}
    emit(result, as_json, lambda: show_message(result))
