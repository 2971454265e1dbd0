"""Audit store of this party, for the privacy officer."""

from __future__ import annotations

from label_dp.http.audit_events import add_audit_calls
from label_dp.http.json_bodies import JsonRouter
from label_dp.http.route_docs import PROBLEM_RESPONSES

router = JsonRouter(prefix="/v1", responses=PROBLEM_RESPONSES)
add_audit_calls(router, "auditor", own_key=lambda services: services.home.own_key())
