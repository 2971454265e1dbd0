"""Model ensemble: a weighted sum of models around the mean of the labels, if validation on unbiased labels can combine
them; otherwise trees of the size chosen by the rule."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from features_party.training import reading
from features_party.training.encoding import FeatureSchema
from features_party.training.learner import CrossFit, Fit, FittedModel, Graph, Learner, ModelInput, Ports, Sample, Task
from features_party.training.learners.additive import Additive
from features_party.training.learners.chance import NOTHING
from features_party.training.learners.comparison import SMALLEST, out_of_fold
from features_party.training.learners.crossfit import BAGS, fit_validated
from features_party.training.learners.forward import Forward
from features_party.training.learners.gaussian import Gaussian
from features_party.training.learners.members import Member, moves
from features_party.training.learners.trees import Boosting, TreeInput, Trees, fit_trees, tree_ports, tree_scores
from features_party.training.likelihood import RowLikelihood
from features_party.training.progress import part
from features_party.training.spread import MedianMap, Spread
from label_dp.progress import Progress
from label_dp.schemas.json_types import JsonObject

FloatArray = npt.NDArray[np.float64]
KINDS: dict[str, type[FittedModel]] = {"additive": Additive, "gaussian": Gaussian, "trees": Trees, "forward": Forward}
MEDIANS = "what is predicted is the median of the labels around the mean that was learned, as the channels tell it"


@dataclass(frozen=True)
class Ensemble(Learner):
    """Ensemble mean + Σ weight·(prediction − mean), each prediction clipped to `bounds` first.

    Weights are at least 0 and need not sum to 1, so that the sum shrinks to the mean if the labels are uninformative.
    `median` turns that sum into the label's median; such a model keeps no spread, which is around means.
    """

    mean: float
    bounds: tuple[float, float]
    parts: tuple[Member, ...]
    spread: Spread | None = None
    median: MedianMap | None = None

    link = None
    of_trees = True
    medians_from = SMALLEST

    @classmethod
    def fit(cls, sample: Sample, task: Task, progress: Progress) -> Fit:
        examples = sample.apart
        if examples >= SMALLEST and isinstance(task.told, RowLikelihood):
            return cls._averaged(sample, task, task.told, progress)
        if not task.validate or examples < SMALLEST:
            return Trees.fit(sample, task, progress)
        members, effects, cross, notes = fit_validated(sample, task, progress)
        mean = float(np.clip(sample.mean, *task.bounds))
        if sample.cells is None:
            return Fit(cls(mean, task.bounds, tuple(members)), effects, cross, notes)
        rows = cross.rows
        spread = Spread.around(cross.predictions[rows], sample.cells.take(rows))
        if not task.median:
            return Fit(cls(mean, task.bounds, tuple(members), spread), effects, cross, notes)
        median = spread.medians(cross.predictions[rows])
        cross = replace(cross, predictions=median(cross.predictions))
        return Fit(cls(mean, task.bounds, tuple(members), median=median), effects, cross, (MEDIANS, *notes))

    @classmethod
    def _averaged(cls, sample: Sample, task: Task, likelihood: RowLikelihood, progress: Progress) -> Fit:
        """Fit trees through the channel on other rows and columns each; their average has less noise.

        Slope and shift of their scores come from trees that did not see the row.
        """
        unseen = out_of_fold(sample, task, tree_scores, part(progress, 0.0, 0.6))
        link = likelihood.straightened(unseen.scores)
        low, high = task.bounds
        model_input, effects = sample.seen(task)
        parts = []
        for bag in range(BAGS):
            report = part(progress, 0.6 + 0.4 * bag / BAGS, 0.4 / BAGS)
            body = fit_trees(TreeInput.of(model_input), sample, task, Boosting(bag, told=likelihood), report)
            parts.append(Member("trees", 1.0 / BAGS, replace(body, link=link)))
        notes = () if link.slope > 0.0 else (NOTHING,)
        cross = CrossFit(link.predictions(unseen.scores), likelihood.link.predictions(unseen.constants), unseen.fold)
        return Fit(cls(low + (high - low) * likelihood.share, task.bounds, tuple(parts)), effects, cross, notes)

    @property
    def count(self) -> int | None:
        counts = [member.body.count for member in self.parts if member.body.count is not None]
        return sum(counts) if counts else None

    def members(self) -> list[dict[str, Any]]:
        return [{"name": m.name, "weight": m.weight, "trees": m.body.count} for m in self.parts]

    def predict(self, inputs: ModelInput, threads: int = 1) -> FloatArray:
        predictions = self.mean + moves(self.parts, self.mean, self.bounds, inputs, threads)
        return predictions if self.median is None else self.median(np.clip(predictions, *self.bounds))

    def importance(self, schema: FeatureSchema) -> dict[str, float]:
        """Sum the members' importances by their weights; trees on top count half for their base."""
        total: dict[str, float] = {}
        own = [m.body.importance(schema) for m in self.parts]
        for at, member in enumerate(self.parts):
            parts = [(own[at], 1.0)] if member.base is None else [(own[at], 0.5), (own[member.base], 0.5)]
            for shares, half in parts:
                for name, share in shares.items():
                    total[name] = total.get(name, 0.0) + member.weight * half * share
        whole = sum(total.values()) or 1.0
        return dict(sorted(((n, s / whole) for n, s in total.items() if s > 0.0), key=lambda item: -item[1]))

    def nodes(self, graph: Graph, ports: Ports) -> str:
        matrix = tree_ports(graph, ports) if any(isinstance(m.body, Trees | Forward) for m in self.parts) else ""
        shape = graph.add("Shape", (ports.numbers + ports.index)[0])
        score = graph.add("Expand", graph.constant([[self.mean]], np.float64), shape)
        scores: list[str] = []
        for member in self.parts:
            output = self._member_nodes(member, graph, ports, matrix, scores)
            scores.append(output)
            if member.weight > 0.0:
                prediction = graph.clip(graph.linked(output, member.body.link), *self.bounds)
                moved = graph.add("Sub", prediction, graph.constant(self.mean, np.float64))
                score = graph.add("Add", score, graph.add("Mul", moved, graph.constant(member.weight, np.float64)))
        if self.median is None:
            return score
        above = graph.add("Sub", graph.clip(score, *self.bounds), graph.constant([self.median.knots], np.float64))
        raised = graph.add("MatMul", graph.add("Relu", above), graph.constant(self.median.bends[:, None], np.float64))
        return graph.add("Add", raised, graph.constant(self.median.values[0], np.float64))

    def _member_nodes(self, member: Member, graph: Graph, ports: Ports, matrix: str, scores: list[str]) -> str:
        if not isinstance(member.body, Trees | Forward):
            return member.body.nodes(graph, ports)
        if member.base is None:
            assert isinstance(member.body, Trees)
            return member.body.node(graph, matrix, None)
        link, base = self.parts[member.base].body.link, scores[member.base]
        if member.body.link is None:
            return member.body.node(graph, matrix, graph.clip(graph.linked(base, link), *self.bounds))
        assert link is not None
        return member.body.node(graph, matrix, graph.clip(base, link.low, link.high))

    def as_json(self) -> JsonObject:
        return {
            "mean": self.mean,
            "bounds": list(self.bounds),
            "spread": None if self.spread is None else self.spread.as_json(),
            "median": None if self.median is None else self.median.as_json(),
            "members": [
                {
                    "name": m.name,
                    "weight": m.weight,
                    "kind": next(name for name, kind in KINDS.items() if isinstance(m.body, kind)),
                    "base": m.base,
                    "body": m.body.as_json(),
                }
                for m in self.parts
            ],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any], numbers: int, sizes: list[int]) -> FittedModel:
        """Parse the output of `as_json`; without validation it holds trees alone."""
        if "members" not in data:
            return Trees.from_json(data, numbers, sizes)
        members: list[Member] = []
        for one in reading.listed(data["members"]):
            body = KINDS[reading.text(one["kind"])].from_json(one["body"], numbers, sizes)
            base = None if one["base"] is None else reading.whole(one["base"], 0, len(members) - 1)
            if isinstance(body, Forward) if base is None else not _stands_on(body, members[base].body):
                raise ValueError("a member has no base")
            members.append(Member(reading.text(one["name"]), reading.number(one["weight"], 0.0), body, base))
        low, high = reading.numbers(data["bounds"], 2).tolist()
        saved_spread = data.get("spread")  # absent in models of earlier versions
        spread = None if saved_spread is None else Spread.from_json(saved_spread)
        middle = data.get("median")  # absent there too
        median = None if middle is None else MedianMap.from_json(middle)
        return cls(reading.number(data["mean"]), (low, reading.number(high, low)), tuple(members), spread, median)


def _stands_on(body: Any, base: Any) -> bool:
    return (
        isinstance(body, Trees | Forward)
        and isinstance(base, Additive)
        and (body.link is None or base.link is not None)
    )


LEARNER = Ensemble
