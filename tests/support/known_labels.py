"""What schemathesis is told of a running labels party: batches in every state, a release and a webhook that exist."""

from __future__ import annotations

import pyarrow as pa

from tests.support.api_fuzz import Known
from tests.support.calibrations import charged, score_table
from tests.support.labels import LabelsParty, label_table
from tests.support.people import BODY, columns
from tests.support.predicting import made

REFUSING = {
    "GET /v1/audit/events": "times and kinds of events have a grammar",
    "GET /v1/populations/{population}/plan": "ε, loss and prior have a grammar",
    "GET /v1/populations/{population}/erasures": "an id has at most 512 bytes",
    "GET /v1/releases": "the cursor is opaque",
    "GET /v1/answers": "the cursor is opaque",
    "GET /v1/given": "the cursor is opaque, and kinds are those of releases and answers",
    "GET /v1/batches": "the cursor is opaque",
    "POST /v1/populations/{population}/erasures": "ids or units are named, one of both",
    "POST /v1/people/{people}/erasures": "ids or units are named, one of both",
    "POST /v1/batches/{batch}/calibrations": "ε, shapes and the numbers of scores have a grammar; ids are of the batch",
    "PUT /v1/batches/{batch}/calibration-allowance": "ε has a grammar, and is at most the lifetime's",
    "POST /v1/batches/{batch}/sums-of-table": "ε has a grammar; ids are of the batch, and groups columns of the table",
    "PUT /v1/batches/{batch}/sums-allowance": "ε has a grammar, and is at most the lifetime's",
    "PUT /v1/batches/{batch}/features": "a table of features has ids and at least one column more",
    "POST /v1/batches/{batch}/rectangles": "features are columns of the batch's table, thresholds in the label domain",
    "POST /v1/batches/{batch}/rectangles/plan": "features are columns of the batch's table",
    "POST /v1/batches/{batch}/linear-models": "features are columns of the batch's table",
    "POST /v1/batches/{batch}/linear-models/plan": "features are columns of the batch's table",
    "POST /v1/batches/{batch}/sums": "groups are columns of the batch's table",
    "POST /v1/batches/{batch}/sums/plan": "groups are columns of the batch's table",
    "POST /v1/predictors": "features are columns of the batch's table, and thresholds lie in the label domain",
    "POST /v1/predictors/{predictor}/predict": "a query names the predictor's features",
    "POST /v1/webhooks": "addresses inside the own network are refused, and the population must exist",
}


def known_labels(party: LabelsParty) -> Known:
    """Makes a published release, a charged one, and batches that are open with and without labels."""
    owner = party.client("owner")
    columns(party, "clicks", "carts")
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
    scores = score_table(label_table(20, prefix="a"))
    calibration = charged(party, sealed[0], scores, additional_release=True)
    party.services.pipeline.run(calibration)
    hooks = [owner.post("/v1/webhooks", json={"url": "https://example.org/hook"}).json()["id"] for _ in range(2)]
    table = label_table(20, prefix="b").set_column(1, "x", pa.array(range(20)))
    party.services.companions.features.put(sealed[1], table)
    asked = {"epsilon": "1", "features": [{"name": "x", "range": [0, 20]}], "additional_release": True}
    model = owner.post(f"/v1/batches/{sealed[1]}/linear-models", json=asked).json()["id"]
    asked |= {"threshold": 5, "slice": 2}
    rectangle = owner.post(f"/v1/batches/{sealed[1]}/rectangles", json=asked).json()["id"]
    for answer in (model, rectangle):
        party.services.pipeline.run(answer)
    predictor = made(party, sealed[1], cap="500", features=[{"name": "x", "range": [0, 20]}])
    described = owner.get(f"/v1/releases/{release}").json()
    return Known(
        objects={
            "path.population": ["shop", described["population"]],
            "path.people": [BODY],
            "path.batch": [*opened, *sealed],
            "path.release": [release, waiting],
            "path.predictor": [predictor],
            "path.rectangle": [rectangle],
            "path.model": [model],
            "path.answer": [calibration],
            "path.calibration": [calibration, charged(party, sealed[0], scores, additional_release=True)],
            "body.batch": sealed,
            "path.webhook": hooks,
            "path.name": [file["name"] for file in described["files"]],
            "query.population": ["shop"],
            "query.batch": sealed,
        },
        refusing=REFUSING,
    )
