"""Labels of two values: how much of the log loss that no privacy removes is removed under ε, and rare conversions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.benchmarks.utility.cells import INFINITE, Cell
from tests.benchmarks.utility.conversions import CLICKS, INCOME, RATE
from tests.benchmarks.utility.grid import Settings, seeds_of
from tests.benchmarks.utility.results import Mean, Results, Table, number, short

EPSILONS = ("0.5", "1", "2")
OURS = "ensemble log"
LEARNERS = (OURS, "linear log", "ensemble squared")
# (learner, factor of the rule's effective rows); the best on test labels counts, an oracle in favour of no privacy
NONE = ((OURS, 1.0), (OURS, 4.0), (OURS, 16.0), ("linear log", 1.0), ("ensemble squared", 1.0))
GOALS = {"0.5": (0.88, 0.938), "1": (0.93, 0.944), "2": (0.97, 0.948)}  # (log loss closed, AUC)
RARE_EPSILONS = ("0.5", "1", "2", "4")
RARE_ROWS = {"linear log": (100_000, 1_000_000, 10_000_000), "trees log": (100_000, 1_000_000)}
QUICK_ROWS, QUICK_CLICKS = 4000, 50_000


def whole(settings: Settings) -> bool:
    """These parts have data of their own: somebody who picks from the other data does not want them."""
    return settings.data == Settings().data


def _cell(learner: str, epsilon: str, settings: Settings, capacity: float = 1.0) -> Cell:
    mechanism = "none" if epsilon == INFINITE else "auto"
    rows = QUICK_ROWS if settings.quick else 0
    return Cell("conversions", INCOME, 0, epsilon, mechanism=mechanism, learner=learner, capacity=capacity, rows=rows)


def _none(settings: Settings) -> list[Cell]:
    wanted = NONE[:1] + NONE[3:4] if settings.quick else NONE
    return [_cell(learner, INFINITE, settings, capacity) for learner, capacity in wanted]


def _learners(settings: Settings) -> tuple[str, ...]:
    return LEARNERS[:2] if settings.quick else LEARNERS


def cells(settings: Settings) -> Iterator[Cell]:
    """Seed by seed, so that a run that is stopped has whole seeds."""
    for seed in range(settings.seeds if whole(settings) else 0):
        private = [_cell(one, e, settings) for e in settings.at(EPSILONS) for one in _learners(settings)]
        yield from (replace(cell, seed=seed) for cell in [*private, *_none(settings)])


def closed(results: Results, learner: str, epsilon: str) -> tuple[Mean, Mean]:
    """(constant − model)/(constant − none) in log loss, seed by seed, and the log loss of none at its best."""
    shares, best = [], []
    for seed in range(results.settings.seeds):
        none = [results.one(replace(cell, seed=seed), "log_loss") for cell in _none(results.settings)]
        cell = replace(_cell(learner, epsilon, results.settings), seed=seed)
        ours, constant = results.one(cell, "log_loss"), results.one(cell, "constant_log_loss")
        found = [one for one in none if one is not None]
        if ours is not None and constant is not None and len(found) == len(none):
            best.append(min(found))
            shares.append((constant - ours) / (constant - best[-1]))
    return Mean(tuple(shares)), Mean(tuple(best))


def tables(results: Results) -> Iterator[Table]:
    settings = results.settings
    header = ["ε", "model", "AUC", "goal", "log loss", "constant", "no privacy, best", "closed", "goal", "met"]
    table = Table("conversions", "Conversions (census income over 50,000 dollars): log loss closed and AUC", header)
    table.notes.append(
        "Closed: (constant − model)/(constant − no privacy) in test log loss, seed by seed. No privacy takes, by "
        f"split, the best by test log loss of {len(NONE)} models. Goals are those of the default model, {OURS}. "
        "Squared: the same features and corrected labels under the squared loss. Everything is automatic; "
        "a seed is a split of its own of 160,000 training rows, the rest for the test."
    )
    for epsilon in (*settings.at(EPSILONS), INFINITE) if whole(settings) else ():
        rows = (
            _none(settings) if epsilon == INFINITE else [_cell(one, epsilon, settings) for one in _learners(settings)]
        )
        for cell in rows:
            _add(table, results, cell)
    yield table


def _add(table: Table, results: Results, cell: Cell) -> None:
    auc, loss, constant = (results.mean(cell, name) for name in ("auc", "log_loss", "constant_log_loss"))
    if not loss:
        return
    goal = GOALS.get(cell.epsilon) if cell.learner == OURS else None
    share, best = closed(results, cell.learner, cell.epsilon) if cell.private else (Mean(()), Mean(()))
    met = "" if goal is None or not share else "yes" if share.mean >= goal[0] and auc.mean >= goal[1] else "no"
    name = cell.learner + (f", {cell.capacity:g} × rows" if cell.capacity != 1.0 else "")
    shown = f"{share.mean:.1%}" + (f" ± {share.std:.1%}" if len(share.values) > 1 else "") if share else "–"
    goals = ("", "") if goal is None else (f"≥ {goal[1]:g}", f"≥ {goal[0]:.0%}")
    row = [cell.epsilon, name, str(auc), goals[0], str(loss), str(constant), str(best), shown, goals[1], met]
    table.rows.append(row)
    record = {"epsilon": cell.epsilon, "model": name, "seeds": len(loss.values), "met": met}
    for key, mean in (("auc", auc), ("log_loss", loss), ("constant", constant), ("none", best), ("closed", share)):
        record |= {f"{key}_mean": short(mean.mean), f"{key}_std": short(mean.std)}
    table.records.append(record)


def _rare(settings: Settings) -> list[Cell]:
    sizes = {"linear log": (QUICK_CLICKS,)} if settings.quick else RARE_ROWS
    return [
        Cell("rare", CLICKS, 0, epsilon, mechanism="auto", learner=learner, rows=rows)
        for rows in sorted({rows for wanted in sizes.values() for rows in wanted})
        for learner, wanted in sizes.items()
        if rows in wanted
        for epsilon in settings.at(RARE_EPSILONS)
    ]


def cells_rare(settings: Settings) -> Iterator[Cell]:
    for cell in _rare(settings) if whole(settings) else ():
        yield from seeds_of(cell, settings)


def tables_rare(results: Results) -> Iterator[Table]:
    header = ["rows", "ε", "model", "conversions", "worth, says the plan", "enough", "AUC", "± (test rows)", "best AUC"]
    table = Table(
        "rare", f"Rare conversions ({float(RATE):.1%} of generated clicks): AUC beside what a plan says", header
    )
    table.notes.append(
        f"Worth: the conversions without noise that would teach as much, as `plan --assume-rate {RATE}` says before "
        "anything is spent; below 30 it warns. Best: the AUC of the probabilities that made the labels."
    )
    for cell in _rare(results.settings) if whole(results.settings) else ():
        found = results.of(cell)
        if not found:
            continue
        means = {name: results.mean(cell, name) for name in ("auc", "auc_error", "best_auc", "positives")}
        worth, enough = found[0]["positives_without_noise"], not found[0]["too_few"]
        row = [f"{cell.rows:,}", cell.epsilon, cell.learner, f"{means['positives'].mean:,.0f}", number(worth)]
        row += ["yes" if enough else "no", str(means["auc"]), number(means["auc_error"].mean), str(means["best_auc"])]
        table.rows.append(row)
        record = {"rows": cell.rows, "epsilon": cell.epsilon, "model": cell.learner, "worth": short(worth)}
        record |= {"enough": enough, "seeds": len(found)}
        table.records.append(record | {f"{name}_mean": short(mean.mean) for name, mean in means.items()})
    yield table
