"""deploy/observing: alerts fire when they should and only then, and name metrics that running services export."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.features_api import running
from tests.support.labels import LabelsParty
from tests.support.messages import Sender

FOLDER = Path(__file__).parents[2] / "deploy" / "observing"
GUIDE = FOLDER.parent / "guides" / "observing.md"
NAME = re.compile(r"\blabel_dp_\w+")


# of each alert: a series that fires it, one that does not, and after how many minutes both are looked at
CASES: dict[str, tuple[str, str, str, int]] = {
    "ServiceDown": ('up{job="labels-party"}', "0x600", "1x600", 6),
    "DatabaseDown": ("label_dp_database_up", "0x600", "1x600", 4),
    "WorkerDead": ('label_dp_worker_alive{worker="w"}', "0x600", "1x600", 3),
    "WorkerSilent": ('label_dp_worker_silent_seconds{worker="w"}', "14400x600", "14100x600", 1),
    "WorkWaits": ('label_dp_work_waiting_seconds{waits_for="work"}', "3600x600", "3300x600", 11),
    "WorkFailed": ('label_dp_work_ended_total{outcome="failed"}', "3x10 4x600", "3x600", 30),
    "ApprovalWaits": ('label_dp_work_waiting_seconds{waits_for="approval"}', "86400x600", "86100x600", 1),
    "BudgetReached": ('label_dp_budget_alert_percent{population="p"}', "50x10 80x600", "80x600", 30),
    "WebhooksFail": ("label_dp_webhook_waiting_seconds", "3600x600", "3300x600", 11),
    "KeysRefused": ('label_dp_refused_keys_total{reason="r"}', "0+20x600", "0+10x600", 20),
    "InternalErrors": ('label_dp_requests_total{status="500"}', "1x10 2x600", "2x600", 15),
    "DiskFull": ("label_dp_home_free_ratio", "0.09x600", "0.1x600", 16),
    "PullsRefused": ('label_dp_step_refusals_total{step="pull"}', "0x10 1x600", "1x600", 30),
    "TrainingWaits": ("label_dp_training_waiting_seconds", "14400x600", "14100x600", 1),
    "TrainingsFail": ('label_dp_trainings{state="failed"}', "0x10 1x600", "1x600", 30),
    "MixedBuilds": ('label_dp_build_info{revision="b"}', "1x600", "_x600", 61),
}


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((FOLDER / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))
    return found


def queries(node: Any) -> Iterator[str]:
    """Every query of a dashboard: of its panels and of its variables."""
    if isinstance(node, dict):
        yield from (text for key in ("expr", "definition") if isinstance(text := node.get(key), str))
        node = list(node.values())
    if isinstance(node, list):
        for each in node:
            yield from queries(each)


@pytest.fixture(scope="module")
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("promtool is not installed (Debian's package prometheus)")
        pytest.skip("promtool is not installed (Debian's package prometheus); rules were not played")
    return found


def play(promtool: str, folder: Path, cases: dict[str, tuple[str, str, str, int]]) -> subprocess.CompletedProcess[str]:
    """Each case in a test of promtool: its first series fires it, its second fires nothing of this name."""
    tests = []
    for alert, (series, loud, quiet, minutes) in cases.items():
        rule = next(r for r in rules() if r["alert"] == alert)
        for values, fires in ((loud, True), (quiet, False)):
            given = [{"series": series, "values": values}]
            if alert == "MixedBuilds":
                given.append({"series": 'label_dp_build_info{revision="a"}', "values": "1x600"})
            firing = f'count(ALERTS{{alertname="{alert}", alertstate="firing"}}) or vector(0)'
            wanted = {
                "expr": firing,
                "eval_time": f"{minutes}m",
                "exp_samples": [{"labels": "{}", "value": float(fires)}],
            }
            tests.append({"name": alert, "interval": "1m", "input_series": given, "promql_expr_test": [wanted]})
        assert rule["annotations"]["runbook"] == f"guides/runbook.md#{alert.lower()}"
    file = folder / "alerts.test.yml"
    file.write_text(
        yaml.safe_dump({"rule_files": [str(FOLDER / "alerts.yml")], "evaluation_interval": "1m", "tests": tests})
    )
    return subprocess.run([promtool, "test", "rules", str(file)], capture_output=True, text=True, check=False)


@pytest.mark.processes
def test_every_alert_fires_when_it_should_and_only_then(promtool: str, tmp_path: Path) -> None:
    assert {rule["alert"] for rule in rules()} == set(CASES)
    done = play(promtool, tmp_path, CASES)
    assert done.returncode == 0, done.stdout + done.stderr
    swapped = {name: (series, quiet, loud, at) for name, (series, loud, quiet, at) in CASES.items()}
    for name, case in swapped.items():
        assert play(promtool, tmp_path, {name: case}).returncode != 0, name


@pytest.mark.processes
def test_prometheus_takes_the_files(promtool: str) -> None:
    done = subprocess.run(
        [promtool, "check", "config", str(FOLDER / "prometheus.yml")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 rule files found" in done.stdout


def test_every_metric_that_an_alert_or_the_dashboard_names_is_exported(tmp_path: Path) -> None:
    named = {name for rule in rules() for name in NAME.findall(rule["expr"])}
    shown = {name for query in queries(dashboard()) for name in NAME.findall(query)}
    assert len(shown) >= 15
    exported = set()
    with LabelsParty(tmp_path / "labels", metrics_port=9464) as party, running(tmp_path, Sender()) as api:
        owner = party.client()
        owner.post("/v1/populations", json={"name": "p", "label": "l", "domain": "0:3", "lifetime_epsilon": "1"})
        for client in (owner, api.trainer):
            client.get("/v1/models", headers={"Authorization": "Bearer nobody"})
            application: Any = client.app
            text = generate_latest(application.state.metrics).decode()
            exported |= {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}
    assert named | shown <= exported, (named | shown) - exported
    ours = {name for name in exported if name.startswith("label_dp_")}
    assert ours == shown  # nothing is left unseen
    told = GUIDE.read_text(encoding="utf-8").split("## Metrics")[1].split("##")[0]
    cells = " ".join(line.split("|")[1] for line in told.splitlines() if line.startswith("| `"))
    assert set(re.findall(r"`(\w+)`", cells)) == {name.removeprefix("label_dp_") for name in ours}


def test_the_dashboard_is_one_that_grafana_provisions() -> None:
    board = dashboard()
    assert board["id"] is None  # Grafana gives it one; a number would replace another dashboard
    assert board["uid"]
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids)) >= 10
    places = [panel["gridPos"] for panel in board["panels"]]
    for place in places:
        assert place["x"] + place["w"] <= 24
    taken = [(x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])]
    assert len(taken) == len(set(taken)), "panels lie on each other"
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            assert target["datasource"] == {"type": "prometheus", "uid": "${source}"}
    provision = yaml.safe_load((FOLDER / "grafana.yml").read_text(encoding="utf-8"))
    assert [p["type"] for p in provision["providers"]] == ["file"]


@pytest.mark.processes
def test_every_query_of_the_dashboard_parses(promtool: str, tmp_path: Path) -> None:
    exprs = [q.replace("$job", "x") for panel in dashboard()["panels"] for q in queries(panel)]
    record = [{"record": f"q{n}", "expr": expr} for n, expr in enumerate(exprs)]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": record}]}))
    done = subprocess.run([promtool, "check", "rules", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
