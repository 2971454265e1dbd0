"""The way of one label through the product: the files that run between its upload and the published message.

`python -m tests.measures.walk` prints how many files and moves between files, and the files by their number of calls.
The party is warm: a first batch has gone the same way, so that neither imports nor the start are counted.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from fastapi.testclient import TestClient

from tests.support.labels import LabelsParty

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = tuple(f"{ROOT / room}/" for room in ("shared", "labels_party", "features_party"))
POPULATION = {"name": "shop", "label": "value", "domain": "0:10", "lifetime_epsilon": "4"}
RELEASE = {"epsilon": "1", "mechanism": "rr-on-bins"}


class Walk:
    """Calls by file of the product, and how often one file's function called another file's."""

    def __init__(self) -> None:
        self.calls, self.moves, self.counts = Counter[str](), 0, False

    def look(self, frame: FrameType, event: str, _argument: Any) -> None:
        if not self.counts or event != "call" or not frame.f_code.co_filename.startswith(PRODUCT):
            return
        self.calls[frame.f_code.co_filename] += 1
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(PRODUCT):
            caller = caller.f_back
        self.moves += caller is not None and caller.f_code.co_filename != frame.f_code.co_filename


@contextmanager
def walked() -> Iterator[Walk]:
    """A walk that sees every thread that starts inside the block, once it `counts`."""
    walk = Walk()
    threading.setprofile(walk.look)
    sys.setprofile(walk.look)
    try:
        yield walk
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]  # typeshed does not know that None ends it


def one_label(owner: TestClient, population: str, example_id: str) -> None:
    """Upload, seal, release, publication of a batch with one label."""
    batch = owner.post(f"/v1/populations/{population}/batches", json={"presence": "public"}).json()["id"]
    label = {"records": [{"example_id": example_id, "label": 3}]}
    assert owner.post(f"/v1/batches/{batch}/labels", json=label).status_code == 200
    assert owner.post(f"/v1/batches/{batch}/seal").status_code == 200
    assert owner.post(f"/v1/batches/{batch}/releases", json=RELEASE).status_code == 202


def walk(folder: Path) -> Walk:
    """The walk of one label, REST and draw included, in a party whose home is in `folder`."""
    with walked() as seen, LabelsParty(folder / "home", worker=False) as party:
        owner = party.client()
        population = owner.post("/v1/populations", json=POPULATION).json()["id"]
        for example_id in ("first", "second"):
            seen.counts = example_id == "second"
            one_label(owner, population, example_id)
            party.services.worker.drain()
        seen.counts = False
        return seen


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        way = walk(Path(name))
    print(f"{len(way.calls):>6,}  files\n{way.moves:>6,}  moves from one file to another\n")
    for path, calls in way.calls.most_common():
        print(f"{calls:>6,}  {Path(path).relative_to(ROOT)}")
