"""The runbook has a part for each alert, and every command in it is typed against two running services."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import yaml

from deploy.demo.services import Service
from tests.support.both_parties import features_keys
from tests.support.serving import free_port

GUIDES = Path(__file__).parents[2] / "deploy" / "guides"
RUNBOOK = GUIDES / "runbook.md"
ALERTS = GUIDES.parent / "observing" / "alerts.yml"
BIN = Path(sys.executable).parent
BLOCK = re.compile(r"^```bash\n(.*?)^```", re.M | re.S)


def parts() -> dict[str, str]:
    """Each part of the runbook by its heading."""
    found = re.split(r"^## (\w+)$", RUNBOOK.read_text(encoding="utf-8"), flags=re.M)[1:]
    return dict(zip(found[::2], found[1::2], strict=True))


def test_every_alert_has_its_part_with_a_meaning_and_commands() -> None:
    (group,) = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    assert list(parts()) == [rule["alert"] for rule in group["rules"]]
    for name, text in parts().items():
        assert len(text.split("```")[0].split()) >= 10, name
        assert BLOCK.findall(text), name


def prepared(labels: Service, owner: str) -> None:
    """A release that waits for approval, a population that reached a threshold, and a webhook that nobody answers."""
    headers = {"Authorization": f"Bearer {owner}"}
    with httpx.Client(base_url=labels.url, headers=headers, trust_env=False, timeout=30) as client:

        def post(path: str, **body: object) -> httpx.Response:
            return client.post(path, json=body).raise_for_status()

        post("/v1/webhooks", url=f"http://127.0.0.1:{free_port()}/", events=["budget.alert"])
        post(
            "/v1/populations",
            name="shop",
            label="revenue",
            domain="0:10",
            lifetime_epsilon="2",
            alert_percent=[50],
            four_eyes=True,
        )
        batch = post("/v1/populations/shop/batches", presence="public").json()["id"]
        ids = [f"c{n}" for n in range(40)]
        post(f"/v1/batches/{batch}/labels", example_id=ids, label=[n % 7 for n in range(40)])
        client.post(f"/v1/batches/{batch}/seal").raise_for_status()
        post(f"/v1/batches/{batch}/releases", epsilon="1", prior="uniform", mechanism="rr-on-bins")
        assert client.get("/v1/nothing", headers={"Authorization": "Bearer lp_wrong"}).status_code == 401


@pytest.mark.processes
def test_every_command_works_as_written(tmp_path: Path, programs: Path) -> None:
    kernels = Path(os.environ["NUMBA_CACHE_DIR"])
    labels = Service("labels-party", "LABELS_PARTY_", tmp_path / "lp", tmp_path / "lp.log", kernels)
    features = Service("features-party", "FEATURES_PARTY_", tmp_path / "fp", tmp_path / "fp.log", kernels)
    ports = {"LABELS": free_port(), "FEATURES": free_port()}
    for service, metrics in ((labels, ports["LABELS"]), (features, ports["FEATURES"])):
        service.environment |= {"METRICS_PORT": metrics, "LOG_FORMAT": "json", "POLL_SECONDS": "0.1"}
    del features.environment["POLL_SECONDS"]
    owner, _ = (labels.run("apikey", "create", "--role", role).strip() for role in ("owner", "ingest"))
    features_keys(tmp_path / "fp", tmp_path / "lp" / "keys" / "signing.pub", "trainer")
    try:
        for service in (labels, features):
            service.launch()
        for service in (labels, features):
            service.await_ready()
        prepared(labels, owner)
        where = {
            "http://127.0.0.1:8001": labels.url,
            "http://127.0.0.1:8002": features.url,
            "http://127.0.0.1:9001": f"http://127.0.0.1:{ports['LABELS']}",
            "http://127.0.0.1:9002": f"http://127.0.0.1:{ports['FEATURES']}",
            "LABELS_LOG=labels-party.log": f"LABELS_LOG={labels.log}",
            "FEATURES_LOG=features-party.log": f"FEATURES_LOG={features.log}",
        }
        start = RUNBOOK.read_text(encoding="utf-8").split("\n## ")[0] + "\n"
        script = "\n".join(
            f"echo '=== {name}'\n" + "\n".join(BLOCK.findall(text))
            for name, text in ({"start": start} | parts()).items()
        )
        for written, here in where.items():
            assert written in script
            script = script.replace(written, here)
        homes = {"LABELS_PARTY_HOME": str(labels.home), "FEATURES_PARTY_HOME": str(features.home)}
        environment = os.environ | homes | {"PATH": f"{programs}:{BIN}:{os.environ['PATH']}", "no_proxy": "127.0.0.1"}
        command = ["bash", "-euo", "pipefail", "-c", script]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    finally:
        for service in (features, labels):
            service.stop()
    told = dict(zip(*[iter(re.split(r"^=== (\w+)$", done.stdout, flags=re.M)[1:])] * 2, strict=True))
    for name, said in {
        "DatabaseDown": "label_dp_database_up 1.0",
        "WorkerDead": 'label_dp_worker_alive{worker="release-worker"} 1.0',
        "WorkWaits": 'label_dp_work_waiting{sort="release",waits_for="approval"} 1.0',
        "ApprovalWaits": "charged",
        "BudgetReached": "shop",
        "KeysRefused": '"event": "key-refused"',
        "InternalErrors": "none since the start",
        "MixedBuilds": 'version="',
        "PullsRefused": "events verified",
        "TrainingsFail": 'label_dp_step_refusals_total{step="train"} 0.0',
    }.items():
        assert said in told[name], f"{name}: {told[name]}"
