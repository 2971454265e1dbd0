"""Runs of MLflow, against its real tracking server, and our model behind its real scoring server.

The tracking server has an environment of its own (`make test-mlflow` makes it), since it wants older libraries than the
project.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest

from tests.support.features_cli import Shell
from tests.support.messages import Sender, one_bit, world
from tests.support.serving import free_port

SERVER = Path(os.environ.get("MLFLOW_SERVER", f"{sys.prefix}/mlflow-server/bin/mlflow"))
MISSING = "MLflow's server is not installed; make test-mlflow installs it"
pytestmark = [
    pytest.mark.processes,
    pytest.mark.mlflow,
    pytest.mark.skipif(not (SERVER.exists() or os.environ.get("REQUIRE_MLFLOW")), reason=MISSING),
]
ROOT = Path(__file__).parents[2]
WORLD = world(1200, seed=2)
KEY = ("--labels-key", "labels-signing.pub")
TABLE = ("--features", "f.parquet", "--id-column", "id")
PATIENCE = 120.0  # libraries of this size take a while from a cold disk


@contextmanager
def running(command: list[str], url: str, folder: Path, **environment: str) -> Iterator[str]:
    """A server until its address answers; it and its children end with the block."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = dict(os.environ) | {"MLFLOW_DISABLE_TELEMETRY": "true", "PATH": path} | environment
    with (folder / f"{url[-5:].strip('/')}.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        for _ in range(int(PATIENCE * 2)):
            assert process.poll() is None, Path(log.name).read_text("utf-8")[-3000:]
            try:
                if httpx.get(url).status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.5)
        else:
            pytest.fail(Path(log.name).read_text("utf-8")[-3000:])
        yield url.rpartition("/")[0]
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)


@pytest.fixture(scope="module")
def tracked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Shell, str]]:
    """A features party with two models, and a tracking server."""
    folder = tmp_path_factory.mktemp("mlflow")
    shell, sender, port = Shell(folder), Sender(), free_port()
    sender.public_key(folder)
    pq.write_table(WORLD.table("id"), folder / "f.parquet")
    sender.write(folder / "m.parquet", WORLD.ids, WORLD.labels, one_bit(epsilon=3.0), epsilon="3")
    shell.run("train", "--message", "m.parquet", *KEY, *TABLE, "--model", "trees", "--out", "model")
    store = ["--backend-store-uri", f"sqlite:///{folder}/runs.db", "--artifacts-destination", str(folder / "artifacts")]
    command = [str(SERVER), "server", *store, "--port", port, "--workers", "1"]
    with running(command, f"http://127.0.0.1:{port}/health", folder, PYTHONPATH="") as url:
        yield shell, url


def of_run(url: str, run: str) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{url}/api/2.0/mlflow/runs/get", params={"run_id": run}).json()["run"]
    return found


def test_a_run_says_what_the_model_cost_and_gained(tracked: tuple[Shell, str]) -> None:
    shell, url = tracked
    logged = shell.json(
        "models", "log", "model", "--tracking-uri", url, "--experiment", "revenue", "--run-name", "day 1"
    )
    run, card = of_run(url, logged["run"]), json.loads((shell.folder / "model" / "card.json").read_text("utf-8"))
    metrics = {metric["key"]: metric["value"] for metric in run["data"]["metrics"]}
    params = {param["key"]: param["value"] for param in run["data"]["params"]}
    tags = {tag["key"]: tag["value"] for tag in run["data"]["tags"]}
    estimate = card["report"]["error_estimate"]
    assert metrics["epsilon_per_example"] == 3.0
    assert [metrics[f"gain{end}"] for end in ("", "_low", "_high")] == [
        pytest.approx(estimate[name]) for name in ("mse_below_constant", "low", "high")
    ]
    assert (params["mechanism"], params["rehearsal"]) == (card["messages"][0]["mechanism"], "false")
    assert json.loads(tags["label_dp.epsilon"])[0]["epsilon_per_example"] == "3"
    assert json.loads(tags["label_dp.messages"])[0]["manifest_digest"] == card["messages"][0]["manifest_digest"]
    assert run["info"]["run_name"] == "day 1"
    listed = httpx.get(f"{url}/api/2.0/mlflow/artifacts/list", params={"run_id": logged["run"], "path": "card"}).json()
    assert sorted(file["path"] for file in listed["files"]) == ["card/card.json", "card/card.md", "card/report.html"]


@pytest.mark.parametrize("with_code", [False, True], ids=["as installed", "with code"])
def test_mlflow_s_own_server_predicts_the_same(tracked: tuple[Shell, str], with_code: bool) -> None:
    shell, url = tracked
    more = ["--with-code"] if with_code else []
    logged = shell.json("models", "log", "model", "--tracking-uri", url, *more)
    shell.run("predict", "--model", "model", *TABLE, "--out", "p.parquet", "--force")
    expected = pq.read_table(shell.folder / "p.parquet")["prediction"].to_pylist()[:50]
    port = free_port()
    command = [sys.executable, "-m", "mlflow", "models", "serve", "-m", logged["model"], "-p", port]
    known = {"MLFLOW_TRACKING_URI": url, "PYTHONPATH": "" if with_code else str(ROOT)}
    with running(
        [*command, "--env-manager", "local"], f"http://127.0.0.1:{port}/ping", shell.folder, **known
    ) as served:
        rows = WORLD.features.slice(0, 50).to_pylist()
        answer = httpx.post(f"{served}/invocations", json={"dataframe_records": rows}, timeout=60.0)
    assert answer.status_code == 200, answer.text
    assert answer.json()["predictions"] == pytest.approx(expected, rel=1e-12)


def test_a_daily_job_logs_each_run(tracked: tuple[Shell, str]) -> None:
    shell, url = tracked
    text = 'features = "f.parquet"\nid_column = "id"\nmessages = ["m.parquet"]\nlabels_key = "labels-signing.pub"\n'
    text += '[train]\nmodel = "linear"\n[mlflow]\n'
    (shell.folder / "pipeline.toml").write_text(f'{text}tracking_uri = "{url}"\nexperiment = "days"\n')
    record = shell.json("daily", "pipeline.toml")
    tags = {tag["key"]: tag["value"] for tag in of_run(url, record["mlflow"]["run"])["data"]["tags"]}
    assert tags["label_dp.kept"] == "today"
    # a server that is away costs the record of the run, never the model
    (shell.folder / "pipeline.toml").write_text(f'{text}tracking_uri = "http://127.0.0.1:9"\nexperiment = "days"\n')
    shell.env |= {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
    again = shell.json("daily", "pipeline.toml", "--again")
    assert "MLflow did not take the run" in again["mlflow"]["problem"]
    assert again["kept"] in ("today", "yesterday")
