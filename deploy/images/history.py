"""One history, seen from both sides, in what is played."""

from __future__ import annotations

import json

from deploy.images.engine import Failed
from deploy.images.rig import Rig

EXPORT = "features-party audit export --force --out ~/export > /dev/null && cat ~/export"
COMPARE = "cat > ~/theirs && labels-party audit verify --against ~/theirs --json"


def features_export(rig: Rig) -> str:
    """The features party's signed audit export."""
    return rig.engine.compose("exec", "-T", "features-party", "sh", "-c", EXPORT)


def one_history(rig: Rig) -> str:
    """audit verify --against the other party's export."""
    words = ("exec", "-T", "labels-party", "sh", "-c", COMPARE)
    seen = json.loads(rig.engine.compose(*words, given=features_export(rig).encode()))
    if seen.get("findings"):
        raise Failed(f"{seen['findings']}")
    return f"{seen.get('events', '')} events, no finding, receipts on both sides"
