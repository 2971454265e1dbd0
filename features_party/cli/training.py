"""`join`, `train`, `evaluate` and `predict`: from messages and features to predictions."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from features_party.cli import app as common
from label_dp.cli.commands import command
from label_dp.cli.numbers import real
from label_dp.cli.output import echo, emit, progress, warn
from label_dp.cli.party_commands import Force, Json, located, table_option
from label_dp.errors import InvalidInput, NotFound
from label_dp.named_modules import installed

if TYPE_CHECKING:
    from label_dp.schemas.training import Learning


ModelName = Annotated[str, typer.Option(help="Folder of a model, or an id or alias of the registry (`models list`).")]


@common.app.command()
def join(
    message: common.Messages,
    features: common.AnyFeatures,
    id_column: common.IdColumn,
    out: Annotated[
        str,
        typer.Option(
            metavar="PATH",
            help="Table to write (.parquet or .csv), here or at s3://, gs:// or abfs://; or a lake table, delta:PLACE "
            "or iceberg:CATALOG/NAMESPACE.TABLE, which gets one commit (--force: in place of the rows of these "
            "messages); or -, an Arrow stream. With Spark a folder of Parquet files.",
        ),
    ],
    labels_key: common.LabelsKey = None,
    correction: common.CorrectionName = "auto",
    list_unmatched: common.Unmatched = None,
    warn_unmatched: common.WarnUnmatched = 0.25,
    refuse_unmatched: common.RefuseUnmatched = 1.0,
    engine: common.EngineName = "local",
    master: common.Master = None,
    more: common.MoreMessages = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write features with raw_label, corrected_label, noise_variance and release, for training elsewhere."""
    named, key = [*message, *(more or ())], common.public_key(labels_key)
    common.require_engine(engine, master)
    from features_party.tables.unmatched import Limits

    limits = Limits(warn_unmatched, refuse_unmatched)
    with progress("join", as_json) as report:
        from features_party.files.jobs import Files, join_files
        from label_dp.store.table_files import target_at

        files = Files(named, key, located(features), id_column, target_at(out), list_unmatched, force)
        if engine == "spark":
            data = _spark().join_on_spark(common.services(), files, master, correction, report, limits)
        else:
            data = join_files(common.services(), files, correction, report, limits)

    def human() -> None:
        from features_party.cli.show import show_join

        show_join(data)

    with redirect_stdout(sys.stderr if out == "-" else sys.stdout):
        emit(data, as_json, human)


@command(common.app)
def train(
    features: common.AnyFeatures,
    id_column: common.IdColumn,
    out: Annotated[Path, typer.Option(help="New folder for the model.")],
    learning: Learning,
    message: common.OptionalMessages = None,
    sums: Annotated[
        str | None,
        typer.Option(
            metavar="ANSWER",
            help="In place of messages: sums that ask-sums brought, by id or file; --features names the codes.",
        ),
    ] = None,
    labels_key: common.LabelsKey = None,
    list_unmatched: common.Unmatched = None,
    engine: common.EngineName = "local",
    master: common.Master = None,
    more: common.MoreMessages = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Account for the messages, join, correct, train, and save a model with its card. With --sums the model is of sums
    by public codes, which at a small ε tell more than a message."""
    named, key = [*(message or ()), *(more or ())], common.public_key(labels_key)
    common.require_engine(engine, master)
    if bool(named) == (sums is not None):
        raise InvalidInput("Name messages with --message, or else sums of labels with --sums.")
    with progress("train", as_json) as report:
        if sums is not None:
            if engine != "local" or list_unmatched is not None or learning != type(learning)():
                raise InvalidInput("A model of --sums has no choices: leave model, loss, columns and engine out.")
            of_sums = installed("features_party.companions.sum_models")
            if of_sums is None:
                raise InvalidInput("The part for sums of labels is not installed; train on a message.")
            card = of_sums.train_sums(common.services(), sums, key, Path(features), id_column, out, report, force=force)
        else:
            from features_party.files.jobs import Files, train_files
            from features_party.models.trainer import check_learning

            if engine == "local":
                check_learning(learning)
            files = Files(named, key, located(features), id_column, out, list_unmatched, force)
            if engine == "local":
                card = train_files(common.services(), files, learning, report)
            else:
                card = _spark(engine).train_from_files(common.services(), files, engine, master, learning, report)

    def human() -> None:
        from features_party.cli.show import show_card

        show_card(card, out)

    emit({"model": str(out), **card}, as_json, human)


@common.app.command()
def evaluate(
    model: ModelName,
    examples: Annotated[
        Any, table_option("--examples", "--features", help="Parquet or CSV, or a lake table, of features held out.")
    ],
    label_column: Annotated[str | None, typer.Option(help="Its column with true labels.")] = None,
    message: Annotated[
        list[Path] | None,
        typer.Option("--message", help="Without true labels: a privatized message of these examples; repeatable."),
    ] = None,
    id_column: Annotated[str | None, typer.Option(help="With --message: the column with example ids.")] = None,
    labels_key: common.LabelsKey = None,
    clip: Annotated[
        bool, typer.Option("--clip", help="Clip the true labels to the model's domain first; default: as they are.")
    ] = False,
    more: common.MoreMessages = None,
    as_json: Json = False,
) -> None:
    """A model's error on held-out examples.

    From true labels: rows, mse, mae, poisson, constant_mse (of the corrected training mean). From messages: mse,
    constant_mse and mse_below_constant with 95 % intervals, as far as their channels identify them. Labels of two
    values, from either: also auc, log_loss, brier and calibration, with 95 % intervals. A model of classes: accuracy,
    log_loss and macro_auc instead.
    """
    from features_party.bootstrap import reader

    if (label_column is None) == (message is None):
        raise InvalidInput("Give --label-column for true labels in the file, or --message for privatized ones.")
    if message is not None:
        from features_party.files.jobs import evaluate_files

        if id_column is None or clip:
            raise InvalidInput("--message needs --id-column, and true labels alone can be clipped with --clip.")
        with progress("evaluate", as_json) as report:
            named = [*message, *(more or ())]
            result = evaluate_files(
                common.services(), _model(model), named, common.public_key(labels_key), examples, id_column, report
            )
    else:
        from features_party.models.evaluation import evaluate as run_evaluate

        threads = reader()[0].threads
        result = run_evaluate(_model(model), examples, str(label_column), clip=clip, threads=threads)

    def human() -> None:
        from features_party.cli.show import show_evaluation

        show_evaluation(result)

    emit(result, as_json, human)


@common.app.command()
def predict(
    model: ModelName,
    features: common.Features,
    id_column: common.IdColumn,
    out: Annotated[
        str, typer.Option(metavar="PATH", help="Table of id and prediction to write (.parquet or .csv); or as of join.")
    ],
    quantile: Annotated[
        list[float] | None,
        typer.Option(parser=real("--quantile", 0, 1), help="A quantile of the label too, such as 0.05; repeatable."),
    ] = None,
    interval: Annotated[
        float | None,
        typer.Option(
            parser=real("--interval", 0, 1), help="The two quantiles that the label is between with this probability."
        ),
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Predict every row of a file; of classes the likeliest, and a column with the probability of each. Quantiles of
    the label are columns too, for models that know them."""
    from features_party.bootstrap import reader
    from features_party.models.evaluation import predict_file, unknown_text
    from features_party.training.model import ends_of
    from label_dp.store.table_files import target_at

    asked = [*(quantile or []), *(() if interval is None else ends_of(interval))]
    saved, threads = _model(model), reader()[0].threads
    predicted = predict_file(saved, features, id_column, target_at(out), quantiles=asked, threads=threads, force=force)
    for column, cells in predicted.unknown_categories.items():
        warn(unknown_text(column, cells, predicted.rows))
    told = {"predictions": str(out), "rows": predicted.rows, "unknown_categories": predicted.unknown_categories}
    emit(told, as_json, lambda: echo(f"{out}: {predicted.rows:,} predictions"))


def _model(name: str) -> Any:
    """A model by folder, id or alias. Raises InvalidFile."""
    with suppress(NotFound):
        return common.open_model(name)
    return common.model_of_folder(Path(name))  # says what cannot be read


def _spark(engine: str = "spark") -> Any:
    """The room of work on files. Raises InvalidInput if it is not installed."""
    spark = installed("features_party.spark.files")
    if spark is None:
        raise InvalidInput(f"The engine '{engine}' is not installed; take the local engine.")
    return spark
