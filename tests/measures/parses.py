"""How often ε is parsed while a features party accepts one message of a batch of which it has another one.

`python -m tests.measures.parses` prints the count by the function that asked for it.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from features_party.bootstrap import Services
from label_dp.privacy import Epsilon
from tests.support.messages import Sender, features_party, world


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Calls of `Epsilon.parse` inside the block, by the function that calls."""
    calls, parse = Counter[str](), Epsilon.parse

    def counting(*args: Any, **options: Any) -> Epsilon:
        code = sys._getframe(1).f_code
        calls[f"{Path(code.co_filename).stem}.{code.co_qualname}"] += 1
        return parse(*args, **options)

    with mock.patch.object(Epsilon, "parse", counting):
        yield calls


def acceptance(folder: Path) -> Counter[str]:
    """Parses of ε by caller: one acceptance of a message by a features party whose home is in `folder`."""
    sender, people, services = Sender(), world(50), features_party(folder / "home")
    try:
        first, second = (folder / release / "message.parquet" for release in ("rel_1", "rel_2"))
        for path in (first, second):
            path.parent.mkdir()
            sender.write(path, people.ids, people.labels, release=path.parent.name)
        services.messages.accept(first, sender.key.public)
        return _second(services, second, sender)
    finally:
        services.close()


def _second(services: Services, path: Path, sender: Sender) -> Counter[str]:
    with counted() as calls:
        assert services.messages.accept(path, sender.key.public).fresh
    return calls


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        table = acceptance(Path(name))
    for caller, calls in table.most_common():
        print(f"{calls:>5}  {caller}")
    print(f"{table.total():>5}  in all")
