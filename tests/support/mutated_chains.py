"""Honest chains that chance changes, and that are numbered and linked again."""

from __future__ import annotations

import copy
import random
from contextlib import suppress
from typing import Any

from tests.support.honest_chains import DECLARATION, Chain, chained

VALUES: list[Any] = [None, "", "x", "0", "1", "1.5", "300", "0.000000001", "1_0", "1.50", "٣", 0, 1, -1, True, [], {}]


def mutated(honest: Chain, rng: random.Random) -> Chain:
    """One to three events dropped, doubled, moved or edited, then chained again."""
    chain = copy.deepcopy(honest)
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(chain))
        move = rng.randrange(5)
        if move == 0 and len(chain) > 1:
            del chain[place]
        elif move == 1:
            chain.insert(rng.randint(0, len(chain)), copy.deepcopy(chain[place]))
        elif move == 2:
            chain.insert(rng.randrange(len(chain)), chain.pop(place))
        elif move == 3:  # whose it is
            own, other = chain[place]["subject"], rng.choice(chain)["subject"]
            if isinstance(own, dict) and isinstance(other, dict):  # an edit before may have left anything there
                own |= {name: other[name] for name in rng.sample(sorted(other), min(len(other), rng.randint(1, 3)))}
        else:
            _edit(chain, place, rng)
    return chained(chain)


def _edit(chain: Chain, place: int, rng: random.Random) -> None:
    one, other = chain[place], rng.choice(chain)
    name = rng.choice(["kind", "subject", "epsilon_nano", "delta", "unit", "audiences", "actor", "details", "inside"])
    if name != "inside":
        one[name] = copy.deepcopy(other[name]) if rng.random() < 0.8 else rng.choice(VALUES)
        return
    inside = one[rng.choice(["subject", "epsilon_nano", "unit", "details"])]
    if isinstance(inside, dict) and inside:
        with suppress(TypeError):
            inside[rng.choice(sorted(inside))] = rng.choice([*VALUES, *DECLARATION.values()])
