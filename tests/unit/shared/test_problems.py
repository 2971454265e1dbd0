"""Every typed error has one stable code, one status and one exit code; internals say nothing."""

from __future__ import annotations

import inspect
import json

import pytest

from label_dp import errors
from label_dp.errors import (
    BudgetExceeded,
    DuplicateId,
    InvalidInput,
    InvalidRows,
    LabelDPError,
    MissingLabels,
    RowProblem,
)
from label_dp.problems import http_problem, problem, status_of

KINDS = [k for _, k in inspect.getmembers(errors, inspect.isclass) if issubclass(k, LabelDPError)]

# written out, since callers match on them: changing one is a change of the interface
EXPECTED = {
    "already-released": (409, 1),
    "audience-mismatch": (422, 1),
    "audit-chain-broken": (409, 1),
    "budget-exceeded": (403, 1),
    "busy": (503, 1),
    "conflict": (409, 1),
    "contradicted": (422, 1),
    "digest-mismatch": (422, 1),
    "duplicate-id": (409, 1),
    "epsilon-not-proved": (500, 1),
    "idempotency-conflict": (422, 1),
    "in-flight": (409, 1),
    "internal": (500, 1),
    "invalid-domain": (422, 2),
    "invalid-epsilon": (422, 2),
    "invalid-events": (400, 2),
    "invalid-file": (422, 2),
    "invalid-input": (422, 2),
    "invalid-loss": (422, 2),
    "invalid-mechanism": (422, 2),
    "invalid-prior": (422, 2),
    "invalid-request": (422, 2),
    "invalid-rows": (422, 2),
    "invalid-settings": (503, 2),
    "invalid-table": (422, 2),
    "malformed-answer": (422, 1),
    "malformed-hand-over": (422, 1),
    "malformed-invitation": (422, 1),
    "malformed-manifest": (422, 1),
    "malformed-receipt": (422, 1),
    "missing-labels": (409, 1),
    "no-receipt-key": (409, 1),
    "not-found": (404, 1),
    "overlapping-batch": (409, 1),
    "randomness-unavailable": (503, 1),
    "precondition-failed": (412, 1),
    "range-not-satisfiable": (416, 2),
    "receipt-conflict": (409, 1),
    "refused": (409, 1),
    "remote-problem": (502, 1),
    "replay-conflict": (422, 1),
    "request-timeout": (408, 1),
    "second-person-needed": (403, 1),
    "signature-invalid": (422, 1),
    "too-large": (413, 2),
    "too-many-calls": (429, 1),
    "unauthenticated": (401, 1),
    "unavailable": (503, 1),
    "unsupported-media-type": (415, 2),
    "unsupported-version": (422, 1),
    "verification-failed": (422, 1),
}


def made(kind: type[LabelDPError]) -> LabelDPError:
    if kind is BudgetExceeded:
        return BudgetExceeded("Over.", asked="1", spent="1", lifetime="1")
    if issubclass(kind, InvalidRows):
        return kind([RowProblem(0, "label", "must be a number")])
    return kind("Something was wrong.")


def test_codes_statuses_and_exit_codes_are_the_published_ones() -> None:
    found = {k.code: (status_of(made(k)), k.exit_code) for k in KINDS}
    assert found == EXPECTED
    assert all(400 <= status < 600 and code in (1, 2) for status, code in found.values())


def test_no_two_kinds_share_a_code_or_a_title() -> None:
    assert len({k.code for k in KINDS}) == len(KINDS)
    assert len({k.title for k in KINDS}) == len(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_problem_body_has_the_members_of_rfc_9457(kind: type[LabelDPError]) -> None:
    error = made(kind)
    status, body = problem(error)
    assert {"type", "title", "status", "detail", "code"} <= set(body)
    assert body["status"] == status
    assert body["type"] == f"urn:label-dp:{kind.code}"
    assert body["detail"] == error.detail
    assert json.loads(json.dumps(body)) == body


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_says_what_it_is(kind: type[LabelDPError]) -> None:
    assert kind.code == kind.code.lower().replace(" ", "-").replace("_", "-")
    assert kind.title[0].isupper()
    assert not kind.title.endswith(".")


def test_a_kind_of_another_module_answers_as_its_nearest_ancestor() -> None:
    class Odd(MissingLabels):
        pass

    class Odder(InvalidInput):
        title = "Odder"

    assert (status_of(Odd("x")), Odd.code, Odd.title) == (409, "missing-labels", "Labels are missing")
    assert (status_of(Odder("x")), Odder.code, Odder.title) == (422, "invalid-input", "Odder")


def test_rejected_rows_are_counted_and_only_the_first_are_listed() -> None:
    error = InvalidRows([RowProblem(i, "label", "must be a number") for i in range(100)], 100)
    _, body = problem(error)
    assert body["rejected"] == 100
    assert len(body["rows"]) == InvalidRows.shown == 20
    assert body["rows"][3] == {"row": 4, "field": "label", "rule": "must be a number"}
    assert "Row 1" in body["detail"]
    assert "99 more" in body["detail"]


def test_a_duplicate_names_rows_only_if_there_are_any() -> None:
    assert "rows" not in problem(DuplicateId("x"))[1]
    assert problem(DuplicateId("x", [RowProblem(4, "example_id", "again")]))[1]["rows"][0]["row"] == 5


def test_what_the_framework_refuses_has_the_same_shape() -> None:
    body = http_problem(405, "method-not-allowed", "Method Not Allowed", "No.", extra=1)
    assert body == {
        "type": "urn:label-dp:method-not-allowed",
        "title": "Method Not Allowed",
        "status": 405,
        "detail": "No.",
        "code": "method-not-allowed",
        "extra": 1,
    }
