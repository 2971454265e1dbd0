"""Our own audit store, for the privacy officer."""

from __future__ import annotations

from label_dp.service.audit_events import add_audit_calls
from label_dp.service.http import PROBLEM_RESPONSES
from label_dp.service.json_bodies import JsonRouter

router = JsonRouter(prefix="/v1", responses=PROBLEM_RESPONSES)
add_audit_calls(router, "auditor", own_key=lambda services: services.home.own_key())
