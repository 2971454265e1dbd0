"""A trained model as a run of MLflow, with what it cost: ε, messages, mechanism, gain with its interval, the card, and
the model itself as a pyfunc. Needs the extra `mlflow`.

    from features_party.integrations.tracking import Tracking, log_run

    log_run(party.models.named("model"), Tracking(tracking_uri="http://127.0.0.1:5000", experiment="revenue"))
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic import Field

import features_party
import label_dp
from features_party.models.card_reading import reading_card
from features_party.models.folder import CARD_FILE, CARD_TEXT, SavedModel
from features_party.pages.models import model_page
from features_party.settings import quiet_mlflow
from label_dp.errors import InvalidInput, Unavailable
from label_dp.installing import DISTRIBUTION, pip_install
from label_dp.schemas.base import Ask

LOADER = "features_party.integrations.pyfunc_model"
OF_FEATURES = re.compile(r"(;| and) extra == ['\"]features['\"]$")
MOST_CHARACTERS = 5000  # of a tag
CODE = [str(Path(str(room.__file__)).parent) for room in (features_party, label_dp)]


class Tracking(Ask):
    """Where runs go."""

    tracking_uri: str | None = Field(default=None, description="MLflow's server; default MLFLOW_TRACKING_URI.")
    experiment: str = Field(default="label-dp", min_length=1, description="Its experiment.")
    registered_model: str | None = Field(default=None, description="Register the model under this name.")
    with_code: bool = Field(
        default=False,
        description="Send this software along, some hundred files, so that the model loads where it is not installed.",
    )


def require_mlflow() -> None:
    """Raise InvalidInput if MLflow is missing; call it before long work."""
    if find_spec("mlflow") is None:
        raise InvalidInput(f"Runs are logged with MLflow: {pip_install('mlflow')}.")


def log_run(
    saved: SavedModel, tracking: Tracking, *, name: str | None = None, more: dict[str, str] | None = None
) -> dict[str, str]:
    """Log a run and return its ids and the URI of the model. `more` are further tags.

    The server gets the content of the model's folder, and no example. Raises InvalidInput if MLflow is missing,
    InvalidFile for a damaged card, Unavailable if the server does not accept the run.
    """
    require_mlflow()
    assert saved.folder is not None  # it was loaded, or there would be no card
    quiet_mlflow()
    import mlflow
    from mlflow.exceptions import MlflowException

    with reading_card():
        params, metrics, tags = params_of(saved.card), metrics_of(saved.card), tags_of(saved.card)
    page = model_page(saved)
    try:
        if tracking.tracking_uri is not None:
            mlflow.set_tracking_uri(tracking.tracking_uri)
        experiment = mlflow.set_experiment(tracking.experiment)
        with (
            tempfile.TemporaryDirectory() as folder,
            mlflow.start_run(experiment_id=experiment.experiment_id, run_name=name, tags=tags | (more or {})) as run,
        ):
            mlflow.log_params(params)
            mlflow.log_metrics(metrics)
            model = Path(folder) / "label-dp-model"
            shutil.copytree(saved.folder, model)
            for file in (CARD_FILE, CARD_TEXT):
                mlflow.log_artifact(str(model / file), "card")
            mlflow.log_text(page, "card/report.html")
            logged = mlflow.pyfunc.log_model(
                name="model",
                loader_module=LOADER,
                data_path=str(model),
                code_paths=CODE if tracking.with_code else None,
                pip_requirements=_requirements(tracking.with_code),
                registered_model_name=tracking.registered_model,
                signature=False,
            )
    except MlflowException as error:
        raise Unavailable(f"MLflow did not take the run ({error.error_code}); see its server's log.") from None
    return {"run": run.info.run_id, "experiment": experiment.experiment_id, "model": str(logged.model_uri)}


def params_of(card: dict[str, Any]) -> dict[str, str]:
    """Return the parameters of the training."""
    of = card["messages"]
    return {
        "model": card["kind"],
        "loss": card["loss"],
        "label": card["label"],
        "domain": card["domain_text"],
        "mechanism": ", ".join(sorted({m["mechanism"] for m in of})),
        "correction": ", ".join(sorted({str(m["correction"]["applied"]) for m in of})),
        "messages": str(len(of)),
        "rehearsal": str(any(m.get("rehearsal", False) for m in of)).lower(),
    }


def metrics_of(card: dict[str, Any]) -> dict[str, float]:
    """Return numbers for comparing runs. ε is the largest of the populations; the tags have each, exact."""
    report, capacity = card["report"], card["capacity"]
    metrics = {
        "epsilon_per_example": max((float(entry["epsilon_per_example"]) for entry in card["epsilon"]), default=0.0),
        "rows": report["matched"],
        "noise_variance": report["noise_variance"],
        "effective_rows": capacity["effective_rows"],
        "seconds": card["seconds"],
    }
    estimate = report["error_estimate"]
    if estimate is not None:
        gain = estimate["log_loss_below_constant"] if "accuracy" in estimate else estimate
        metrics |= {"gain": gain.get("estimate", gain.get("mse_below_constant")), "gain_low": gain["low"]}
        metrics |= {"gain_high": gain["high"]}
    return {name: float(value) for name, value in metrics.items() if value is not None}


def tags_of(card: dict[str, Any]) -> dict[str, str]:
    """Return exact values as JSON."""
    messages = [
        {name: m[name] for name in ("release", "manifest_digest", "mechanism", "epsilon")} for m in card["messages"]
    ]
    epsilon = [
        {name: entry[name] for name in ("name", "label", "key_id", "epsilon_per_example", "delta_per_example", "unit")}
        for entry in card["epsilon"]
    ]
    values = {"label_dp.epsilon": epsilon, "label_dp.messages": messages, "label_dp.notes": card["notes"]}
    return {name: json.dumps(value, ensure_ascii=False)[:MOST_CHARACTERS] for name, value in values.items()}


def _requirements(with_code: bool) -> list[str]:
    """List the requirements for loading the model: our own distribution, or those of its code."""
    try:
        ours, dependencies = [f"{DISTRIBUTION}[features]=={version(DISTRIBUTION)}"], requires(DISTRIBUTION) or []
    except PackageNotFoundError:  # a checkout that is not installed
        return []
    needed = [OF_FEATURES.sub("", one) for one in dependencies]
    return [one for one in needed if "extra ==" not in one] if with_code else ours
