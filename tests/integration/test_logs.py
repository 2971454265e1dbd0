"""The log: one JSON object an event from the first line to the last, and never the text of an error or of a value."""

from __future__ import annotations

import ast
import io
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from label_dp.http.serving import quiet_python
from label_dp.logs import configure_logging, lines_to, log_format_of, place_of
from tests.support.both_parties import labels_keys
from tests.support.labels import LabelsParty
from tests.support.serving import free_port

ROOT = Path(__file__).parents[2]
SECRET = "123.45-SECRET"
POPULATION = {"name": "shop", "label": "revenue", "domain": "0:10", "lifetime_epsilon": "5"}


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What a service whose lines are JSON has written."""
    root, stream = logging.getLogger(), io.StringIO()
    handler, before = lines_to(stream, "json"), root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield stream
    root.removeHandler(handler)
    root.setLevel(before)
    assert SECRET not in stream.getvalue()


def events(written: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in written.getvalue().splitlines()]


def bug(*_: object, **__: object) -> None:
    raise ValueError(SECRET)


def test_a_bug_is_told_by_kind_module_line_and_request(
    party: LabelsParty, written: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = party.client()
    owner.post("/v1/populations", json=POPULATION)
    batch = owner.post("/v1/populations/shop/batches").json()["id"]
    monkeypatch.setattr(party.services.intake, "add_labels", bug)
    answer = owner.post(
        f"/v1/batches/{batch}/labels", json={"example_id": ["a"], "label": [1]}, headers={"X-Request-ID": "req-7"}
    )
    assert answer.status_code == 500
    (line,) = [line for line in events(written) if line["event"] == "internal-error"]
    assert line["error"] == "ValueError"
    assert re.fullmatch(r"labels_party\.labels\.intake:\d+ \(in tests\.integration\.test_logs:\d+\)", line["at"])
    assert line["request_id"] == "req-7"
    assert line["level"] == "error"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", line["time"])


def test_a_bug_of_the_worker_and_of_any_thread(
    party: LabelsParty, written: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(party.services.pipeline, "run_due", bug)
    party.client()
    end, found = time.monotonic() + 30, list[dict[str, Any]]()
    while not found and time.monotonic() < end:
        found = [line for line in events(written) if line["event"] == "internal-error"]
        time.sleep(0.01)
    assert {line["worker"] for line in found} == {"release-worker"}
    assert "labels_party.work.worker:" in found[0]["at"]
    with quiet_python():
        thread = threading.Thread(target=bug, name="some")
        thread.start()
        thread.join()
        warnings.warn(SECRET, UserWarning, stacklevel=1)
    told = events(written)
    (line,) = [line for line in told if "some" in line["message"]]
    assert line["error"] == "ValueError"
    assert [line["error"] for line in told if line["event"] == "warning"] == ["UserWarning"]


@pytest.mark.parametrize("log_format", ["json", "plain"])
def test_what_libraries_say_has_no_values(
    log_format: Any, written: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure_logging(log_format)
    # a test before may have started a quiet server of its own
    monkeypatch.setattr(logging.getLogger("uvicorn"), "propagate", True)
    logging.getLogger("uvicorn.error").setLevel(logging.NOTSET)
    try:
        bug()
    except ValueError:
        logging.getLogger("asyncio").error(f"Task raised {SECRET}", exc_info=True)
        logging.getLogger("uvicorn.error").error("Exception in ASGI application\n", exc_info=True)
        logging.getLogger("sqlalchemy.pool").warning("parameters %s", SECRET)
    text = written.getvalue()
    assert SECRET not in text
    assert len(text.splitlines()) == 3, text
    assert "Exception in ASGI application (ValueError at tests.integration.test_logs:" in text
    if log_format == "json":
        assert [json.loads(line)["event"] for line in text.splitlines()] == ["internal-error", "internal-error", "line"]


def test_a_place_is_a_module_and_a_line() -> None:
    with pytest.raises(ValueError, match="property name") as told:
        json.loads("{")
    assert re.fullmatch(r"json\.decoder:\d+", place_of(told.value.__traceback__))
    assert place_of(None) == "?"


@pytest.mark.parametrize(("given", "found"), [("json", "json"), ("plain", "plain"), ("xml", "plain"), (None, "plain")])
def test_the_format_is_known_before_the_settings(
    given: str | None, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LABELS_PARTY_LOG_FORMAT", raising=False)
    if given is not None:
        monkeypatch.setenv("LABELS_PARTY_LOG_FORMAT", given)
    assert log_format_of("labels party") == found


def test_every_line_of_the_product_names_its_event() -> None:
    """`extra=event(…)`, or a name given to that, or the helper that does it."""
    levels = {"info", "warning", "error", "critical", "log", "exception"}
    seen = 0
    for room in ("shared", "labels_party", "features_party"):
        for path in (ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                    continue
                of = ast.unparse(node.func.value)
                if node.func.attr in levels and (of.endswith(("log", "access")) or "getLogger" in of):
                    seen += 1
                    assert any(k.arg == "extra" for k in node.keywords), f"{path}:{node.lineno}"
                    assert node.func.attr != "exception", f"{path}:{node.lineno} writes a traceback"
    assert seen >= 15


PLANTED = f"""
import sys
from labels_party.labels.intake import Intake
def bug(*_, **__):
    raise ValueError({SECRET!r})
Intake.add_labels = bug
sys.argv = ["labels-party", "serve"]
from labels_party.cli import main
main()
"""


@pytest.mark.processes
def test_a_service_writes_json_from_the_first_line_to_the_last(tmp_path: Path) -> None:
    home = tmp_path / "home"
    owner = labels_keys(home, "owner")["owner"]
    port = free_port()
    environment = os.environ | {
        "LABELS_PARTY_HOME": str(home),
        "LABELS_PARTY_PORT": port,
        "LABELS_PARTY_LOG_FORMAT": "json",
    }
    program = [sys.executable, "-c", PLANTED]
    process = subprocess.Popen(program, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        with httpx.Client(
            base_url=f"http://127.0.0.1:{port}", headers={"Authorization": f"Bearer {owner}"}, trust_env=False
        ) as client:
            end = time.monotonic() + 60
            while time.monotonic() < end:
                try:
                    if client.get("/readyz").status_code == 200:
                        break
                except httpx.TransportError:
                    time.sleep(0.1)
            client.post("/v1/populations", json=POPULATION)
            batch = client.post("/v1/populations/shop/batches").json()["id"]
            sent = client.post(f"/v1/batches/{batch}/labels", json={"example_id": ["a"], "label": [1]})
            assert sent.status_code == 500
    finally:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    assert out == ""
    assert SECRET not in err
    lines = [json.loads(line) for line in err.splitlines()]
    names = [line["event"] for line in lines]
    assert (names[0], names[-1]) == ("starting", "stopped")
    assert {"listening", "request", "internal-error"} <= set(names)
    requests = [line for line in lines if line["event"] == "request"]
    assert all(line["request_id"] for line in requests)


@pytest.mark.processes
def test_a_refused_start_is_a_json_line_too(tmp_path: Path) -> None:
    environment = os.environ | {
        "LABELS_PARTY_HOME": str(tmp_path),
        "LABELS_PARTY_LOG_FORMAT": "json",
        "LABELS_PARTY_POLL_SECONDS": "never",
    }
    command = [str(Path(sys.executable).parent / "labels-party"), "serve"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    (line,) = map(json.loads, done.stderr.splitlines())
    assert line["event"] == "refused"
    assert line["level"] == "critical"
    assert "LABELS_PARTY_POLL_SECONDS" in line["message"]
