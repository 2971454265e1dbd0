"""Traces of the features party: request, pull, verify, join, train; and nothing of a label, an id or a feature."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from features_party import bootstrap
from features_party.api.app import create_app
from features_party.settings import Settings
from features_party.telemetry.traces import Traces
from label_dp.errors import InvalidSettings
from tests.support.endpoint import Endpoint
from tests.support.features_api import WORLD, Api, message_files, running
from tests.support.labels import LabelsParty, label_table
from tests.support.messages import Sender, features_party
from tests.support.serving import serving

pytestmark = pytest.mark.extended

ATTRIBUTES = {"http.request.method", "http.route", "http.response.status_code", "outcome"}


@pytest.fixture
def kept() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def api(tmp_path: Path, kept: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """A features party that keeps its spans in memory."""
    traces = Traces(SimpleSpanProcessor(kept), "1", "rev")
    monkeypatch.setattr(bootstrap.Services, "traces", lambda _: traces)
    with running(tmp_path, Sender()) as found:
        yield found


def named(kept: InMemorySpanExporter, name: str) -> ReadableSpan:
    (found,) = (span for span in kept.get_finished_spans() if span.name == name)
    return found


def inside(inner: ReadableSpan, outer: ReadableSpan) -> bool:
    assert outer.context is not None
    return inner.parent is not None and inner.parent.span_id == outer.context.span_id


def test_a_pull_is_one_trace_from_the_request_to_the_account(
    api: Api, kept: InMemorySpanExporter, tmp_path: Path
) -> None:
    with LabelsParty(tmp_path / "labels") as party:
        publisher = party.client("features")
        key = publisher.headers["Authorization"].removeprefix("Bearer ")
        release = party.release(party.sealed_batch(label_table(50), audiences=["features-party"]))
        api.services.pinned.pin(party.home / "keys" / "signing.pub")
        with serving(party.application) as url:
            caller = {"traceparent": f"00-{'1' * 32}-{'2' * 16}-01"}
            body = {"url": url, "release": release, "api_key": key}
            assert api.trainer.post("/v1/messages", json=body, headers=caller).status_code == 201
            kept_spans = len(kept.get_finished_spans())
            assert api.trainer.post("/v1/messages", json=body | {"release": "rel_none"}).status_code == 404
    request, pull = (next(s for s in kept.get_finished_spans() if s.name == n) for n in ("POST /v1/messages", "pull"))
    assert inside(pull, request)
    for step in ("verify", "fetch", "account"):
        found = next(s for s in kept.get_finished_spans() if s.name == step)
        assert inside(found, pull)
        assert found.attributes == {"outcome": "done"}
    assert request.context is not None
    assert request.context.trace_id == int("1" * 32, 16)  # within the trace of the caller
    refused = [s for s in kept.get_finished_spans()[kept_spans:] if s.name in ("verify", "pull")]
    assert [s.attributes for s in refused] == [{"outcome": "not-found"}] * 2
    assert not any(s.status.is_ok for s in refused)


def test_a_caller_without_a_key_can_neither_extend_nor_leave_traces(api: Api, kept: InMemorySpanExporter) -> None:
    stranger = {"Authorization": "", "traceparent": f"00-{'a' * 32}-{'b' * 16}-00", "tracestate": "a=any-text"}
    for path in ("/v1/models", "/v1/nothing", "/nothing", "/sign-in"):
        api.trainer.get(path, headers=stranger)
    keyed = {"traceparent": f"00-{'c' * 32}-{'d' * 16}-00", "tracestate": "a=any-text"}
    assert api.trainer.get("/v1/models", headers=keyed).status_code == 200
    *refused, admitted = spans = kept.get_finished_spans()
    assert len(refused) == 4
    assert all(span.parent is None and span.context.trace_id != int("a" * 32, 16) for span in refused)
    assert admitted.context.trace_id == int("c" * 32, 16)  # with a key, within its trace, and never left out of it
    assert not any(span.context.trace_state for span in spans)
    assert "any-text" not in "".join(span.to_json() for span in spans)


def test_a_training_is_linked_to_the_request_that_asked_for_it(
    api: Api, kept: InMemorySpanExporter, tmp_path: Path
) -> None:
    api.accept(files_of(api, tmp_path))
    api.trained()
    train, join, fit = (named(kept, name) for name in ("train", "join", "fit"))
    assert inside(join, train)
    assert inside(fit, train)
    (link,) = train.links
    asked = named(kept, "POST /v1/trainings").context
    assert asked is not None
    assert link.context.span_id == asked.span_id


def files_of(api: Api, tmp_path: Path) -> dict[str, bytes]:
    sender = Sender()
    api.services.pinned.pin(sender.public_key(tmp_path))
    return message_files(sender, tmp_path / "m")


def test_a_span_has_no_label_no_id_and_no_feature(api: Api, kept: InMemorySpanExporter, tmp_path: Path) -> None:
    api.accept(files_of(api, tmp_path))
    model = api.trained()
    api.trainer.get("/v1/nothing/secret-path?secret=query")
    api.trainer.post(f"/v1/models/{model}/predict", json={"rows": [{"x": "secret-feature"}]})
    broken = {"file": ("secret-name.dsse.json", b"{}", "application/octet-stream")}
    assert api.trainer.post("/v1/messages", files=broken).status_code >= 400
    spans = kept.get_finished_spans()
    assert len(spans) >= 8
    for span in spans:
        assert set(span.attributes or {}) <= ATTRIBUTES, span.name
        assert not span.events  # an exception would be one, with its text
        assert span.status.description is None
    told = "".join(span.to_json() for span in spans)
    column = WORLD.table().column_names
    for secret in ("secret", model, "rel_1", *WORLD.ids[:3], *(f'"{name}"' for name in column)):
        assert secret not in told, secret


def test_probes_make_no_spans(api: Api, kept: InMemorySpanExporter) -> None:
    for path in ("/healthz", "/readyz", "/metrics"):
        assert api.trainer.get(path).status_code == 200
    assert kept.get_finished_spans() == ()


def test_a_collector_receives_them(tmp_path: Path) -> None:
    with Endpoint(200) as collector:
        base = collector.url.rsplit("/", 1)[0]
        services = features_party(tmp_path / "home", otlp_endpoint=base, revision="abc")
        key = services.apikeys.create("trainer")[1]
        with TestClient(create_app(services), headers={"Authorization": f"Bearer {key}"}) as client:
            assert client.get("/v1/models").status_code == 200
    sent = [got for got in collector.received if got.path.endswith("/v1/traces")]
    assert sent
    message = ExportTraceServiceRequest.FromString(sent[0].body)
    (resource,) = message.resource_spans
    attributes = {a.key: a.value.string_value for a in resource.resource.attributes}
    assert attributes["service.name"] == "features-party"
    assert attributes["service.revision"] == "abc"
    assert [s.name for scope in resource.scope_spans for s in scope.spans] == ["GET /v1/models"]


def test_without_the_extra_or_with_a_bad_address_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("features_party.telemetry.traces.find_spec", lambda _: None)
    with pytest.raises(InvalidSettings, match=r"OTLP_ENDPOINT needs OpenTelemetry: pip install"):
        Traces.to("http://127.0.0.1:4318", "1", "")
    monkeypatch.setenv("FEATURES_PARTY_OTLP_ENDPOINT", "ftp://secret:word@host")
    with pytest.raises(InvalidSettings, match="FEATURES_PARTY_OTLP_ENDPOINT must be") as refused:
        Settings.load()
    assert "word" not in str(refused.value)
