"""`calibrate`: a signed private map applied to a model's predictions, or to a file of scores."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from features_party.cli.app import LabelsKey, app, public_key, services
from features_party.cli.door import ApiKeyFile
from label_dp.cli.output import emit, progress, table
from label_dp.cli.panels import AROUND
from label_dp.cli.party_commands import Force, Json, table_option
from label_dp.errors import InvalidInput
from label_dp.store.output_files import writable


@app.command(rich_help_panel=AROUND)
def calibrate(
    score_map: Annotated[
        str, typer.Option("--map", help="The signed map: a file, or the id of an answer (`answers list`).")
    ],
    out: Annotated[Path | None, typer.Option(help="With --model: new folder; with --scores: table to write.")] = None,
    labels_key: LabelsKey = None,
    url: Annotated[
        str | None, typer.Option(help="Fetch the answer that --map names from this labels party's service first.")
    ] = None,
    api_key_file: ApiKeyFile = None,
    model: Annotated[
        str | None,
        typer.Option(help="Folder of a model, or an id of the registry (without --out the result is registered)."),
    ] = None,
    scores: Annotated[Any | None, table_option(help="Instead of a model: Parquet or CSV file of scores.")] = None,
    id_column: Annotated[str | None, typer.Option(help="Column with example ids, of --scores or --examples.")] = None,
    score_column: Annotated[str | None, typer.Option(help="With --scores: its column with scores.")] = None,
    score_2_column: Annotated[
        str | None, typer.Option(help="With --scores and a map of two scores: the column with second scores.")
    ] = None,
    examples: Annotated[
        Any | None, table_option("--examples", "--features", help="With --plots: features that were held out.")
    ] = None,
    label_column: Annotated[
        str | None, typer.Option(help="With --plots: the column with true labels, of --scores or --examples.")
    ] = None,
    message: Annotated[
        list[Path] | None,
        typer.Option("--message", help="With --plots: a privatized message of the examples instead; repeatable."),
    ] = None,
    plots: Annotated[
        Path | None,
        typer.Option(help="Folder for reliability diagrams, before.png and after.png; needs the extra plots."),
    ] = None,
    clip: Annotated[
        bool, typer.Option("--clip", help="With --plots: clip the true labels to the map's domain first.")
    ] = False,
    interpolate: Annotated[
        bool, typer.Option("--interpolate", help="Straight lines instead of steps: free, and better for smooth maps.")
    ] = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Account for a calibration, put its map behind a model's predictions, and draw what it changed."""
    from features_party.companions.files import CalibrateJob, apply_calibration

    job = CalibrateJob(
        score_map=score_map,
        labels_key=public_key(labels_key),
        model=model,
        scores=scores,
        id_column=id_column,
        score_column=score_column,
        examples=examples,
        label_column=label_column,
        messages=tuple(message or ()),
        out=out,
        plots=plots,
        clip=clip,
        interpolate=interpolate,
        force=force,
        score_2_column=score_2_column,
    )
    job.check()
    if plots is not None and plots.exists() and not plots.is_dir():
        raise InvalidInput(f"'{plots}' is no folder; --plots names one.")
    if out is not None:
        writable(out, force)
    if url is not None:
        from features_party.cli.answers import fetch

        fetched, _ = fetch(url, score_map, job.labels_key, api_key_file, 0.0, as_json)
        job = replace(job, score_map=fetched.digest)
    with progress("calibrate", as_json) as report:
        result = apply_calibration(services(), job, report)
    emit(result, as_json, lambda: _show(result))


def _show(data: dict[str, Any]) -> None:
    eps = data["epsilon"]
    rows = [
        ["calibration", f"{data['answer']}, {data['shape']}, {data['loss']} loss, {data['pieces']} pieces"],
        ["population", f"{data['population_name']} ({data['label']}), {data['n']:,} examples, all charged"],
        ["ε", f"{eps['total']}; δ = {eps['delta']}"],
        ["accounted for", "now" if data["fresh"] else "before"],
    ]
    rows += [[what, str(data[what])] for what in ("model", "table") if what in data]
    for when in ("before", "after"):
        found = data.get("reliability", {}).get(when)
        if found is not None:
            alone = f"{found['sampling_floor']:.3g} by sampling alone"
            rows.append([f"calibration error {when}", f"{found['calibration_error']:.6g} ({alone})"])
            rows.append([f"mse {when}", f"{data['errors'][f'mse_{when}']:.6g}"])
    if data.get("labels_clipped"):
        rows.append(["true labels", "clipped to the map's domain"])
    rows += [["diagram", name] for name in data.get("plots", [])]
    table("Calibrated", ["", ""], rows)
