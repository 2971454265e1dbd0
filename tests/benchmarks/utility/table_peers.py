"""Against the field: methods of others beside ours, on the same splits, each at its own best settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tests.benchmarks.utility import table_losses
from tests.benchmarks.utility.cells import INFINITE, Cell, options_text
from tests.benchmarks.utility.conversions import INCOME
from tests.benchmarks.utility.grid import RR_ON_BINS, RR_WITH_PRIOR, Column, Settings
from tests.benchmarks.utility.peers.boosters import without_lightgbm
from tests.benchmarks.utility.peers.cell import (
    BLOCK_RR,
    EDUCATION,
    LP_MST,
    MESSAGE,
    NEAR,
    NOISY,
    PUBLISHED,
    QUICK,
    RP_WITH_PRIOR,
)
from tests.benchmarks.utility.peers.judged import HIGHER
from tests.benchmarks.utility.peers.noisy_gradients import DELTA
from tests.benchmarks.utility.results import Mean, Results, Table, short
from tests.benchmarks.utility.store import Result
from tests.benchmarks.utility.table_conversions import QUICK_ROWS, whole
from tests.benchmarks.utility.table_gap import sized

EPSILONS = ("0.5", "1", "2")
NUMBERS = ("census", "retail", "claims", "bike")
FIGURES = {
    "claims": ("poisson",),
    INCOME: ("auc", "log_loss"),
    EDUCATION: ("accuracy", "log_loss", "macro_auc"),
}  # of other numbers the squared error
SHOWN = {
    "mse": "test MSE",
    "poisson": "Poisson loss",
    "auc": "AUC",
    "log_loss": "log loss",
    "accuracy": "accuracy",
    "macro_auc": "macro AUC",
}
UNBIASED = Column("unbiased, as drawn", "unbiased", "unbiased")


@dataclass(frozen=True)
class Peer:
    """A column: how its labels are made private, by whom, and which tasks it has (numbers, two values, classes)."""

    title: str
    tasks: str
    trust: str
    rounds: str
    guarantee: str
    source: str
    settings: str
    one_message: bool = True


LABELS_PARTY = "labels party alone"
PURE = "ε"
SIZES = "trees of 5 sizes under the data's loss (of classes 2), labels as drawn"
PEERS: dict[str, Peer] = {
    "ours": Peer(
        "ours", "numbers, two values, classes", LABELS_PARTY, "one", PURE, "this service", "none: every default"
    ),
    "rr-on-bins": Peer("RR-on-Bins", "numbers, two values", LABELS_PARTY, "one", PURE, "Ghazi et al. 2022", SIZES),
    "rr-with-prior": Peer(
        "RRWithPrior", "numbers, two values, classes", LABELS_PARTY, "one", PURE, "Ghazi et al. 2021", SIZES
    ),
    "unbiased": Peer(
        "optimal unbiased",
        "numbers, two values",
        LABELS_PARTY,
        "one",
        PURE,
        "Badanidiyuru et al. 2023; the service's mechanism `unbiased` solves its linear program",
        SIZES,
    ),
    RP_WITH_PRIOR: Peer(
        "RPWithPrior",
        "numbers",
        LABELS_PARTY,
        "one",
        PURE,
        "Liu & Huang 2026, arXiv 2601.22625",
        "5 δ at 3 shares of ε for the prior, compared on 50,000 rows; of the best, trees of 5 sizes, labels as drawn",
    ),
    BLOCK_RR: Peer(
        "BlockRR",
        "numbers, two values, classes",
        LABELS_PARTY,
        "one",
        PURE,
        "Liu & Ding 2026, arXiv 2602.03277",
        "3 σ, 2 ℓ, 2 parts of the rows for the prior, compared on 50,000 rows; of the best, trees of 5 sizes (of "
        "classes 2), labels as drawn",
    ),
    "lightgbm": Peer(
        "LightGBM, corrected labels",
        "numbers, two values",
        LABELS_PARTY,
        "one, the same draw as ours",
        PURE,
        "its own code",
        "5 sizes at 4 numbers of rounds",
    ),
    "xgboost": Peer(
        "XGBoost, corrected labels",
        "numbers, two values",
        LABELS_PARTY,
        "one, the same draw as ours",
        PURE,
        "its own code",
        "5 sizes at 4 numbers of rounds",
    ),
    LP_MST: Peer(
        "LP-MST",
        "two values, classes",
        "whoever randomizes must know each example's features, or ask for their predictions",
        "1, 2 or 4",
        PURE,
        "Ghazi et al. 2021",
        "1, 2 and 4 stages, XGBoost of 2 sizes",
        one_message=False,
    ),
    NOISY: Peer(
        "noisy gradients",
        "numbers, two values, classes",
        "**the trainer holds raw labels**",
        "none: nobody else can train on them",
        f"(ε, δ = {DELTA:g})",
        "DP-SGD (Abadi et al. 2016) for labels alone",
        "linear and logistic models of columns in bins, 7 penalties, noise of 3 shapes, and with pairs of columns (of "
        "14 columns at most)",
        one_message=False,
    ),
}


def cells(settings: Settings) -> Iterator[Cell]:
    """Seed by seed, so that a run that is stopped has whole seeds; what takes least time comes first. Of further seeds
    those whose settings are known."""
    for seed in range(settings.seeds):
        for peer in (NOISY, LP_MST, "rr-on-bins", "rr-with-prior", "unbiased", BLOCK_RR, RP_WITH_PRIOR, "ours"):
            for data in _data(settings):
                for epsilon in settings.at(EPSILONS):
                    yield from cells_of_seed(seed, peer, data, epsilon, settings, settings.kept) or ()


def cells_of_seed(
    seed: int, peer: str, data: str, epsilon: str, settings: Settings, kept: Mapping[Cell, Result]
) -> list[Cell] | None:
    """Of the first split every setting; of others what was best there for any figure, None while that is unknown.
    Noisy gradients, the learners of our message and models of outputs as published, which are few, take every setting
    of every split."""
    every = cells_of(peer, data, epsilon, settings)
    few = peer in (NOISY, "ours", "lightgbm", "xgboost") or any(cell.learner.startswith(PUBLISHED) for cell in every)
    if seed == 0 or few:
        return [replace(cell, seed=seed) for cell in every]
    if any(cell not in kept for cell in every):
        return None
    names = FIGURES.get(data, ("mse",))
    if len(every) > 1:
        best = {(max if name in HIGHER else min)(every, key=lambda cell: kept[cell][name]) for name in names}
        return [replace(cell, seed=seed) for cell in every if cell in best]
    near = [sorted({kept[cell]["settings"][name] for name in names}) for cell in every]
    return [replace(cell, seed=seed, options=options_text({NEAR: one})) for cell, one in zip(every, near, strict=True)]


def _data(settings: Settings) -> list[str]:
    return [*(data for data in NUMBERS if data in settings.data), *((INCOME, EDUCATION) if whole(settings) else ())]


def cells_of(peer: str, data: str, epsilon: str, settings: Settings) -> list[Cell]:
    """Of seed 0; the best of them counts. None where the peer does not have that task. Ours and the learners of
    corrected labels are one cell, because they see one message."""
    numbers, quick = data in NUMBERS, [QUICK] if settings.quick else []
    rows = rows_of(data, settings) if numbers else QUICK_ROWS if settings.quick else 0
    cell = Cell("peers", data, 0, epsilon, mechanism="auto", rows=rows)
    if peer in ("ours", "lightgbm", "xgboost"):
        libraries = [] if data == EDUCATION else ["xgboost", *(["lightgbm"] if without_lightgbm() == "" else [])]
        return [replace(cell, learner=" ".join([MESSAGE, settings.learner("full", data), *libraries]))]
    if peer in (NOISY, BLOCK_RR) or (peer == LP_MST and not numbers) or (peer == RP_WITH_PRIOR and numbers):
        return [replace(cell, mechanism=peer, learner=" ".join([peer, *quick]))]
    column = {"rr-on-bins": RR_ON_BINS, "rr-with-prior": RR_WITH_PRIOR, "unbiased": UNBIASED}.get(peer)
    if column is None or (data == EDUCATION and peer != "rr-with-prior"):
        return []
    if numbers:
        return [replace(one, rows=rows) for one in sized(column, data, epsilon, settings)]
    return [replace(cell, mechanism=column.mechanism, learner=" ".join([PUBLISHED, *quick]))]


def rows_of(data: str, settings: Settings) -> int:
    """At most so many training rows of numbers, as the wide grids have; 0 for all."""
    return settings.rows(data, wide=True)


def none(data: str, settings: Settings) -> Cell:
    """The default model of the true labels of the same rows."""
    return replace(table_losses.ours(data, INFINITE, settings), rows=rows_of(data, settings))


def figure(results: Results, peer: str, data: str, epsilon: str, name: str) -> Mean:
    """Over the seeds of which the peer has all its cells: the best of these, split by split."""
    found = []
    for seed in range(results.settings.seeds):
        wanted = cells_of_seed(seed, peer, data, epsilon, results.settings, results.found)
        if not wanted:
            continue
        stored = [results.found.get(cell, {}) for cell in wanted]
        inner = [
            one.get(peer, {}) if cell.learner.startswith(MESSAGE) else one
            for one, cell in zip(stored, wanted, strict=True)
        ]
        values = [one[name] for one in inner if name in one]
        if len(values) == len(wanted):
            found.append(max(values) if name in HIGHER else min(values))
    return Mean(tuple(found))


def tables(results: Results) -> Iterator[Table]:
    settings = results.settings
    header = ["data", "ε", "figure", *(peer.title for peer in PEERS.values())]
    table = Table("peers", "Against the field: test figures of methods of others beside ours", header)
    table.notes.append(
        "The same splits and rows for everybody: of retail and claims at most 50,000 to learn, of census 40,000. Ours "
        "takes every default. A peer takes, for each figure, the best by test labels of its settings on the first "
        "split, and on the others the settings that were best there (noisy gradients, the two libraries and, of income "
        "and education, outputs as published: the best of every split), which favours it. Bold: the best "
        "of one message (all but the last two columns). –: it does not have this task, or it was not computed. Where "
        "one label is frequent (claims, income, education), RR-on-Bins and RRWithPrior may send one constant, since "
        "that is their optimum. Log losses of peers are those of probabilities cut at the best of three places, their "
        "Poisson losses those of means."
    )
    table.notes.append(
        "RPWithPrior and BlockRR are restated from their abstracts and their authors' public code; the articles were "
        "not at hand. RPWithPrior's code takes its prior from raw labels. Here that prior is a histogram with Laplace "
        "noise, paid from the same ε, and the best of three shares counts. BlockRR counts its prior on a part of the "
        "rows at the whole ε and randomizes the other rows at the whole ε, as published. Of numbers, RRWithPrior and "
        "BlockRR take each value for a class. Of numbers, the trees of all of them have this service's features."
    )
    if why := without_lightgbm():
        table.notes.append(f"LightGBM is left out: {why}.")
    for data in _data(settings):
        for epsilon in settings.at(EPSILONS):
            for name in FIGURES.get(data, ("mse",)):
                _add(table, {peer: figure(results, peer, data, epsilon, name) for peer in PEERS}, data, epsilon, name)
    yield table
    if table.rows:
        yield _who()


def _add(table: Table, means: dict[str, Mean], data: str, epsilon: str, name: str) -> None:
    if not any(means.values()):
        return
    one_message = [mean.mean for peer, mean in means.items() if mean and PEERS[peer].one_message]
    best = (max if name in HIGHER else min)(one_message) if one_message else None
    shown = [
        f"**{mean}**" if mean and PEERS[peer].one_message and mean.mean == best else str(mean)
        for peer, mean in means.items()
    ]
    table.rows.append([data, epsilon, SHOWN[name], *shown])
    record = {"data": data, "epsilon": epsilon, "figure": name}
    for peer, mean in means.items():
        record |= {f"{peer}_mean": short(mean.mean), f"{peer}_std": short(mean.std)}
    table.records.append(record)


def _who() -> Table:
    """What the columns are, and whom each trusts."""
    header = ["method", "tasks", "who knows raw labels", "messages", "guarantee", "from", "settings tried"]
    table = Table("peers-trust", "The methods of that table", header)
    for peer in PEERS.values():
        row = [peer.title, peer.tasks, peer.trust, peer.rounds, peer.guarantee, peer.source, peer.settings]
        table.rows.append(row)
        table.records.append(dict(zip(header, row, strict=True)))
    return table
