"""What schemathesis is told of a running labels party: batches in every state, a release and a webhook that exist."""

from __future__ import annotations

from tests.support.api_fuzz import Known
from tests.support.labels import LabelsParty, label_table

REFUSING = {
    "GET /v1/audit/events": "times and kinds of events have a grammar",
    "GET /v1/populations/{population}/plan": "ε, loss and prior have a grammar",
    "GET /v1/populations/{population}/erasures": "an id has at most 512 bytes",
    "GET /v1/releases": "the cursor is opaque",
    "POST /v1/webhooks": "addresses inside the own network are refused, and the population must exist",
}


def known_labels(party: LabelsParty) -> Known:
    """Makes a published release, a charged one, and batches that are open with and without labels."""
    owner = party.client("owner")
    sealed = [
        party.sealed_batch(label_table(20, prefix=p), lifetime="1000", audiences=["features-party"]) for p in "ab"
    ]
    release = party.release(sealed[0])
    waiting = party.charge(sealed[1])
    opened = []
    for number, presence in enumerate(("public", "public", "id-list", "id-list")):
        batch = owner.post("/v1/populations/shop/batches", json={"presence": presence}).json()["id"]
        opened.append(batch)
        ids = {"example_id": [f"o{number}-{i}" for i in range(5)]}
        if presence == "id-list":
            owner.put(f"/v1/batches/{batch}/examples", json=ids).raise_for_status()
        owner.post(f"/v1/batches/{batch}/labels", json=ids | {"label": [1, 2, 3, 4, 5]}).raise_for_status()
    hooks = [owner.post("/v1/webhooks", json={"url": "https://example.org/hook"}).json()["id"] for _ in range(2)]
    described = owner.get(f"/v1/releases/{release}").json()
    return Known(
        objects={
            "path.population": ["shop", described["population"]],
            "path.batch": [*opened, *sealed],
            "path.release": [release, waiting],
            "path.webhook": hooks,
            "path.name": [file["name"] for file in described["files"]],
            "query.population": ["shop"],
            "query.batch": sealed,
        },
        refusing=REFUSING,
    )
