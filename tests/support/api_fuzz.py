"""Schemathesis over the OpenAPI document of a running application: every phase, every check, one role at a time."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import schemathesis
from fastapi import FastAPI
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import Status, events, from_schema

PHASES = ("examples", "coverage", "fuzzing", "stateful")
NDJSON = "application/x-ndjson"
KEY = "Idempotency-Key"
ACCEPTED = ("2xx", "3xx", "401", "403", "404", "409", "429")
NO_BUG = ("2xx", "3xx", "4xx")
REAL = 0.7  # share of calls about objects that exist


@schemathesis.serializer(NDJSON)
def lines(_: schemathesis.SerializationContext, value: Any) -> bytes:
    """One JSON value per line; what is no list is sent as it is."""
    if isinstance(value, str | bytes):
        return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    return "".join(json.dumps(line) + "\n" for line in (value if isinstance(value, list) else [value])).encode()


@dataclass
class Fuzzed:
    """What was tried, and the failures: one line each, with the operation, the check and how to repeat the call."""

    cases: int = 0
    operations: set[str] = field(default_factory=set)
    statuses: Counter[int] = field(default_factory=Counter)
    succeeded: set[str] = field(default_factory=set)  # operations that were done at least once
    failures: dict[tuple[str, str], str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def told(self) -> str:
        """All failures as text; empty where there is none."""
        return "\n\n".join([*self.failures.values(), *self.errors])


@dataclass(frozen=True)
class Known:
    """What the document cannot say: objects that exist, and operations that answer in their own way, with the reason.

    Calls with an Idempotency-Key may be refused as well: a key is printable, and used for one body only. `objects` are
    real values by parameter (`path.batch`, `body.feature_table`), used in most calls. `refusing`
    operations may refuse (422) what fits their schema; `unreachable` ones need another service, which is not there.
    `unchecked` are checks of an operation that do not apply.
    """

    objects: dict[str, list[Any]] = field(default_factory=dict)
    refusing: dict[str, str] = field(default_factory=dict)
    unreachable: tuple[str, ...] = ()
    unchecked: dict[tuple[str, str], str] = field(default_factory=dict)

    def operations(self, document: Mapping[str, Any]) -> list[dict[str, Any]]:
        rules: dict[str, dict[str, Any]] = {}
        keyed = [
            f"{method.upper()} {path}"
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
            if any(parameter["name"] == KEY for parameter in operation.get("parameters", ()))
        ]
        for name in [*self.refusing, *keyed]:
            rules.setdefault(name, {})["positive_data_acceptance"] = {"expected-statuses": [*ACCEPTED, "422"]}
        if "400" in document["paths"].get("/v1/events", {}).get("post", {}).get("responses", {}):
            # its refusals are those of another specification, which knows no 422
            rules["POST /v1/events"] = {"positive_data_acceptance": {"expected-statuses": [*ACCEPTED, "400", "422"]}}
        for name in self.unreachable:
            rules.setdefault(name, {})["not_a_server_error"] = {"expected-statuses": [*NO_BUG, "502", "503"]}
            rules[name]["positive_data_acceptance"] = {"expected-statuses": [*ACCEPTED, "422"]}
        for name, check in self.unchecked:
            rules.setdefault(name, {})[check] = {"enabled": False}
        return [{"include-name": name, "checks": checks} for name, checks in rules.items()]


def configuration(
    seed: int, examples: int, seconds: int | None, phases: tuple[str, ...], known: Known
) -> dict[str, Any]:
    return {
        "seed": seed,
        "continue-on-failure": True,
        "generation": {"max-examples": examples, "database": "none", "no-shrink": True},
        "phases": {name: {"enabled": name in phases} for name in PHASES},
        "dictionaries": {f"real-{n}": {"values": values} for n, values in enumerate(known.objects.values())},
        "parameters": {
            place: {"dictionary": f"real-{n}", "probability": REAL} for n, place in enumerate(known.objects)
        },
    } | ({} if seconds is None else {"max-time": seconds})


def started(app: FastAPI) -> Any:
    """`app`, whose lifespan runs elsewhere, for a caller that would start it again."""

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            await app(scope, receive, send)
            return
        for wanted in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{wanted}.complete"})

    return inner


def fuzz(
    app: FastAPI,
    key: str,
    known: Known,
    *,
    seed: int = 1,
    examples: int = 10,
    seconds: int | None = None,
    phases: tuple[str, ...] = PHASES,
) -> Fuzzed:
    """Call every operation of `app` with valid and with invalid data, as the caller who holds `key`.

    `examples` are per operation and phase; `seconds` is the most it takes. The same seed makes the same calls as long
    as the answers are the same.
    """
    wanted = configuration(seed, examples, seconds, phases, known) | {"headers": {"Authorization": f"Bearer {key}"}}
    wanted["operations"] = known.operations(app.openapi())
    config = SchemathesisConfig.from_dict(wanted)
    schema = schemathesis.openapi.from_asgi("/openapi.json", started(app), config=config)
    found = Fuzzed()
    for event in from_schema(schema).execute():
        if isinstance(event, events.ScenarioFinished):
            _note(event, found)
        elif isinstance(event, events.NonFatalError):
            found.errors.append(f"{event.label}: {event.info.title}: {event.value}"[:2000])
        elif isinstance(event, events.FatalError):
            raise event.exception
        elif isinstance(event, events.EngineFinished):
            found.seconds = event.running_time
    return found


def _note(event: events.ScenarioFinished, found: Fuzzed) -> None:
    recorder = event.recorder
    found.cases += len(recorder.cases)
    for node in recorder.cases.values():
        found.operations.add(node.value.operation.label)
    for case, interaction in recorder.interactions.items():
        if interaction.response is not None:
            found.statuses[int(interaction.response.status_code)] += 1
            if interaction.response.status_code < 300 and case in recorder.cases:
                found.succeeded.add(recorder.cases[case].value.operation.label)
    for case, checks in recorder.checks.items():
        for check in checks:
            if check.status == Status.FAILURE and check.failure_info is not None:
                failure = check.failure_info.failure
                label = recorder.cases[case].value.operation.label
                text = f"{label} · {check.name} · {failure.title}\n{failure.message}\n{check.failure_info.code_sample}"
                found.failures.setdefault((label, f"{check.name}: {failure.title}"), text[:3000])
