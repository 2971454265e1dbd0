"""Both verifiers on 10⁵ changed documents of every kind: one verdict on each; and answers that state too little."""

from __future__ import annotations

import copy
import itertools
import random
import time

from label_dp.documents.signing import SigningKey
from tests.soak.conftest import Scale
from tests.soak.report import Report
from tests.support.golden_documents import documents
from tests.support.mutations import mutants
from tests.support.verdicts import ACCEPTED, verdicts

MUTATIONS, LONGER = 100_000, 4  # times the seconds of a part: a document takes about four milliseconds


def test_verdicts_of_both_verifiers(scale: Scale, report: Report) -> None:
    key, end = SigningKey.generate(), time.monotonic() + LONGER * scale.seconds
    golden = documents(key.public.id)
    tried = accepted = 0
    apart: list[str] = []
    for name, document in itertools.islice(mutants(golden, random.Random(scale.seed)), MUTATIONS):
        product, standalone = verdicts(name, document, key)
        tried += 1
        accepted += product == standalone == ACCEPTED
        if (product == ACCEPTED) != (standalone == ACCEPTED):
            apart.append(f"{name}: product '{product}', standalone '{standalone}'")
        if time.monotonic() > end:
            break
    report.row(tried, tried - len(apart), f"0 on which the two verifiers differ; {accepted:,} are accepted by both")
    report.finding(
        "12 standalone and product disagree",
        tried=f"{tried:,} seeded changes of {len(golden)} honest documents of every kind, signed by the right key",
        before="audiences as a string, other adjacency, unknown or missing members, NaN outputs, 01.3: accepted by one",
        after=f"{len(apart)} on which they differ",
    )
    assert not apart, apart[:10]


def test_answers_that_state_less_than_they_cost(scale: Scale, report: Report) -> None:
    """Each part of what an answer states, one unit of its last place lower, with all sums made right again."""
    key = SigningKey.generate()
    golden = documents(key.public.id)
    tried, taken = 0, []
    for name, honest in golden.items():
        if name.startswith(("rectangle", "linear model", "prediction: average", "prediction: stable")):
            for nano in (1, 10**6, 10**8):
                lie = copy.deepcopy(honest)
                total = round(float(honest["epsilon"]["total"]) * 10**9) - nano
                text = f"{total // 10**9}.{total % 10**9:09d}".rstrip("0").rstrip(".")
                lie["epsilon"] |= {"randomize": text, "total": text}
                said = verdicts(name, lie, key)
                tried += 1
                taken += [name] if ACCEPTED in said else []
    report.row(tried, tried - len(taken), "0 taken by either verifier")
    report.finding(
        "13 a linear model may state less than its steps cost",
        tried=f"{tried} signed answers of every kind whose parameters name a cost, stating 10⁻⁹ to 0.1 less",
        before="accepted",
        after=f"{len(taken)} accepted",
    )
    assert not taken, taken
