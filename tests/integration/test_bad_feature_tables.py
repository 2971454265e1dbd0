"""Generated damaged feature tables at the features party: taken whole or refused in a sentence, with nothing left."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from tests.support.bad_uploads import damaged
from tests.support.features_api import Api, running
from tests.support.messages import Sender
from tests.support.upload_formats import MEDIA

pytestmark = pytest.mark.extended

REFUSALS = {"invalid-file": 422, "invalid-table": 422, "invalid-rows": 422, "too-large": 413, "invalid-input": 422}


def stored(api: Api) -> tuple[int, int]:
    """Tables that are listed, and files that lie there."""
    listed = api.trainer.get("/v1/feature-tables?limit=1000").json()
    rows = listed["feature_tables"] if isinstance(listed, dict) else listed
    return len(rows), sum(p.is_file() for p in (api.services.home.feature_tables).iterdir())


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_damaged_tables_are_refused_or_taken_whole(form: str, tmp_path: Path) -> None:
    rng = random.Random(f"{form}-23")
    seen: Counter[int] = Counter()
    with running(tmp_path, Sender(), worker=False) as api:
        path = "/v1/feature-tables?id_column=example_id"
        for _ in range(200):
            upload = damaged(form, [f"c{i}" for i in range(30)], rng)
            answer = api.trainer.post(path, content=upload.body, headers={"content-type": MEDIA[form]})
            seen[answer.status_code] += 1
            if answer.status_code == 201:
                assert answer.json()["rows"] >= 1
                assert api.trainer.delete(f"/v1/feature-tables/{answer.json()['id']}").status_code == 204
                continue
            assert answer.headers["content-type"] == "application/problem+json"
            assert REFUSALS.get(answer.json()["code"]) == answer.status_code, answer.text
        assert seen[422] > 80
        assert stored(api) == (0, 0)
