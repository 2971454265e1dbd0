"""What both clients ask for around the message: calibrations, medians and predictors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, TypeVar

from labels_party import client_calls as calls
from labels_party.client_calls import Json
from shared.service.remote import Conversation

if TYPE_CHECKING:
    from shared.frames import Frame

T = TypeVar("T")


class BlockingAnswers(ABC):
    """Calls of `LabelsPartyClient`."""

    @abstractmethod
    def _run(self, talk: Conversation[T]) -> T: ...

    def answers(self, since: str | None = None, population: str | None = None) -> list[Json]:
        """Every published answer that is meant for us (for the owner: all), of whatever kind, the newest last."""
        return self._run(calls.answers(since, population))

    def answer(self, answer: str) -> Json:
        """State and cost of an answer of whatever kind, also of a predictor's to a query."""
        return self._run(calls.get("answers", answer))

    def answer_document(self, answer: str) -> bytes:
        """The signed document, the same bytes for ever."""
        return self._run(calls.download("answers", answer, "document"))

    # --- calibrations -------------------------------------------------------------------------------------

    def calibrate(
        self,
        batch: str,
        scores: Frame,
        epsilon: str,
        *,
        id_column: str = "example_id",
        score_column: str = "score",
        score_2_column: str | None = None,
        **options: Any,
    ) -> Json:
        """Charge the batch and ask for a private monotone map from these scores to the label.

        options: loss, shape (default auto), option (a list of "NAME=VALUE"), scores (how they are numbered),
        additional_release. With `score_2_column` (numbered by scores_2) the map has two scores.
        """
        columns = calls.score_columns(id_column, score_column, score_2_column)
        return self._run(calls.calibrate(batch, scores, columns, {"epsilon": epsilon} | options))

    def calibration(self, calibration: str) -> Json:
        return self._run(calls.get("calibrations", calibration))

    def wait_calibration(self, calibration: str, timeout: float = 600.0) -> Json:
        """The calibration once it is published. Raises Conflict if it failed, Unavailable after `timeout` seconds."""
        return self._run(calls.wait(calibration, timeout, "calibrations"))

    def calibration_document(self, calibration: str) -> bytes:
        """The signed map, for `features-party calibrate --map`."""
        return self._run(calls.download("calibrations", calibration, "document"))

    def allow_calibrations(self, batch: str, epsilon: str) -> Json:
        """How much of a sealed batch its audiences may charge by calibrations they ask for; "0" ends it."""
        return self._run(calls.put("batches", batch, "calibration-allowance", body={"epsilon": epsilon}))

    def calibration_allowance(self, batch: str) -> Json:
        return self._run(calls.get("batches", batch, "calibration-allowance"))

    # --- medians ------------------------------------------------------------------------------------------

    def median(self, batch: str, epsilon: str, **options: Any) -> Json:
        """Charge the batch and ask for an approximate median of its labels. options: delta, method,
        additional_release."""
        return self._run(calls.post("batches", batch, "medians", body={"epsilon": epsilon} | options))

    def median_state(self, median: str) -> Json:
        return self._run(calls.get("medians", median))

    def wait_median(self, median: str, timeout: float = 600.0) -> Json:
        """The median once it is published. Raises Conflict if it failed, Unavailable after `timeout` seconds."""
        return self._run(calls.wait(median, timeout, "medians"))

    def median_document(self, median: str) -> bytes:
        """The signed document; `shared.message.median.open_median` verifies and reads it."""
        return self._run(calls.download("medians", median, "document"))

    # --- rectangles and linear models, of the labels party's own features -----------------------------------

    def rectangle(
        self, batch: str, epsilon: str, threshold: str | int | float, features: list[Json], **options: Any
    ) -> Json:
        """Charge the batch and ask for an interval of every feature that labels of at least `threshold` lie in.

        features: [{"name", "range": [low, high]}], of the table that `put_features` sent. options: delta, bits, method,
        slice, additional_release.
        """
        body = {"epsilon": epsilon, "threshold": threshold, "features": features} | options
        return self._run(calls.post("batches", batch, "rectangles", body=body))

    def plan_rectangle(
        self, batch: str, epsilon: str, threshold: str | int | float, features: list[Json], **options: Any
    ) -> Json:
        """What `rectangle` would charge, and how many positive examples it would leave outside; nothing is charged."""
        body = {"epsilon": epsilon, "threshold": threshold, "features": features} | options
        return self._run(calls.post("batches", batch, "rectangles", "plan", body=body))

    def rectangle_state(self, rectangle: str) -> Json:
        return self._run(calls.get("rectangles", rectangle))

    def wait_rectangle(self, rectangle: str, timeout: float = 600.0) -> Json:
        """The rectangle once it is published. Raises Conflict if it failed, Unavailable after `timeout` seconds."""
        return self._run(calls.wait(rectangle, timeout, "rectangles"))

    def rectangle_document(self, rectangle: str) -> bytes:
        """The signed document; `shared.message.rectangle.open_rectangle` verifies, reads and applies it."""
        return self._run(calls.download("rectangles", rectangle, "document"))

    def linear_model(self, batch: str, epsilon: str, features: list[Json], **options: Any) -> Json:
        """Charge the batch and ask for a linear model of the label, trained once through the batch.

        features: [{"name", "range": [low, high]} or {"name", "values": [...]}], of the table that `put_features` sent.
        options: delta, rule, steps, minibatch, clip, rate, additional_release.
        """
        body = {"epsilon": epsilon, "features": features} | options
        return self._run(calls.post("batches", batch, "linear-models", body=body))

    def plan_linear_model(self, batch: str, epsilon: str, features: list[Json], **options: Any) -> Json:
        """What `linear_model` would charge, and what a step would get of it; nothing is charged."""
        body = {"epsilon": epsilon, "features": features} | options
        return self._run(calls.post("batches", batch, "linear-models", "plan", body=body))

    def linear_model_state(self, model: str) -> Json:
        return self._run(calls.get("linear-models", model))

    def wait_linear_model(self, model: str, timeout: float = 600.0) -> Json:
        """The model once it is published. Raises Conflict if it failed, Unavailable after `timeout` seconds."""
        return self._run(calls.wait(model, timeout, "linear-models"))

    def linear_model_document(self, model: str) -> bytes:
        """The signed document; `shared.message.linear_model.open_linear_model` verifies, reads and applies it."""
        return self._run(calls.download("linear-models", model, "document"))

    # --- predictors ---------------------------------------------------------------------------------------

    def put_features(self, batch: str, features: Frame, *, id_column: str = "example_id") -> Json:
        """The labels party's own features of a batch's examples; they are stored there and sent nowhere."""
        return self._run(calls.put_features(batch, features, id_column))

    def create_predictor(
        self, batch: str, method: str, epsilon: str, epsilon_cap: str, features: list[Json], **options: Any
    ) -> Json:
        """A model that stays at the labels party and answers queries of `epsilon` each, of `epsilon_cap` in all.

        features: [{"name", "range": [low, high]} or {"name", "values": [...]}]. options: threshold, learner, parts,
        regularisation, centre, bound, additional_release.
        """
        body = {"batch": batch, "method": method, "epsilon": epsilon, "epsilon_cap": epsilon_cap, "features": features}
        return self._run(calls.post("predictors", body=body | options))

    def predictors(self) -> list[Json]:
        return self._run(calls.listing("predictors"))

    def predictor(self, predictor: str) -> Json:
        """How it answers, what a query costs and how many new ones are left."""
        return self._run(calls.get("predictors", predictor))

    def wait_predictor(self, predictor: str, timeout: float = 600.0) -> Json:
        """The predictor once it is trained. Raises Conflict if it failed, Unavailable after `timeout` seconds."""
        return self._run(calls.wait_predictor(predictor, timeout))

    def predict(self, predictor: str, query: Json) -> bytes:
        """The signed answer to one query; the same query is answered the same, at no charge. A refusal charges
        nothing. `shared.message.prediction.open_prediction` verifies it."""
        return self._run(calls.predict(predictor, query))

    def retire_predictor(self, predictor: str) -> Json:
        """Delete what it learned; the answers that it gave stay."""
        return self._run(calls.post("predictors", predictor, "retire"))


class AwaitedAnswers(ABC):
    """Calls of `AsyncLabelsPartyClient`."""

    @abstractmethod
    async def _run(self, talk: Conversation[T]) -> T: ...

    async def answers(self, since: str | None = None, population: str | None = None) -> list[Json]:
        return await self._run(calls.answers(since, population))

    async def answer(self, answer: str) -> Json:
        return await self._run(calls.get("answers", answer))

    async def answer_document(self, answer: str) -> bytes:
        return await self._run(calls.download("answers", answer, "document"))

    # --- calibrations -------------------------------------------------------------------------------------

    async def calibrate(
        self,
        batch: str,
        scores: Frame,
        epsilon: str,
        *,
        id_column: str = "example_id",
        score_column: str = "score",
        score_2_column: str | None = None,
        **options: Any,
    ) -> Json:
        columns = calls.score_columns(id_column, score_column, score_2_column)
        return await self._run(calls.calibrate(batch, scores, columns, {"epsilon": epsilon} | options))

    async def calibration(self, calibration: str) -> Json:
        return await self._run(calls.get("calibrations", calibration))

    async def wait_calibration(self, calibration: str, timeout: float = 600.0) -> Json:
        return await self._run(calls.wait(calibration, timeout, "calibrations"))

    async def calibration_document(self, calibration: str) -> bytes:
        return await self._run(calls.download("calibrations", calibration, "document"))

    async def allow_calibrations(self, batch: str, epsilon: str) -> Json:
        return await self._run(calls.put("batches", batch, "calibration-allowance", body={"epsilon": epsilon}))

    async def calibration_allowance(self, batch: str) -> Json:
        return await self._run(calls.get("batches", batch, "calibration-allowance"))

    # --- medians ------------------------------------------------------------------------------------------

    async def median(self, batch: str, epsilon: str, **options: Any) -> Json:
        return await self._run(calls.post("batches", batch, "medians", body={"epsilon": epsilon} | options))

    async def median_state(self, median: str) -> Json:
        return await self._run(calls.get("medians", median))

    async def wait_median(self, median: str, timeout: float = 600.0) -> Json:
        return await self._run(calls.wait(median, timeout, "medians"))

    async def median_document(self, median: str) -> bytes:
        return await self._run(calls.download("medians", median, "document"))

    # --- rectangles and linear models, of the labels party's own features -----------------------------------

    async def rectangle(
        self, batch: str, epsilon: str, threshold: str | int | float, features: list[Json], **options: Any
    ) -> Json:
        body = {"epsilon": epsilon, "threshold": threshold, "features": features} | options
        return await self._run(calls.post("batches", batch, "rectangles", body=body))

    async def plan_rectangle(
        self, batch: str, epsilon: str, threshold: str | int | float, features: list[Json], **options: Any
    ) -> Json:
        body = {"epsilon": epsilon, "threshold": threshold, "features": features} | options
        return await self._run(calls.post("batches", batch, "rectangles", "plan", body=body))

    async def rectangle_state(self, rectangle: str) -> Json:
        return await self._run(calls.get("rectangles", rectangle))

    async def wait_rectangle(self, rectangle: str, timeout: float = 600.0) -> Json:
        return await self._run(calls.wait(rectangle, timeout, "rectangles"))

    async def rectangle_document(self, rectangle: str) -> bytes:
        return await self._run(calls.download("rectangles", rectangle, "document"))

    async def linear_model(self, batch: str, epsilon: str, features: list[Json], **options: Any) -> Json:
        body = {"epsilon": epsilon, "features": features} | options
        return await self._run(calls.post("batches", batch, "linear-models", body=body))

    async def plan_linear_model(self, batch: str, epsilon: str, features: list[Json], **options: Any) -> Json:
        body = {"epsilon": epsilon, "features": features} | options
        return await self._run(calls.post("batches", batch, "linear-models", "plan", body=body))

    async def linear_model_state(self, model: str) -> Json:
        return await self._run(calls.get("linear-models", model))

    async def wait_linear_model(self, model: str, timeout: float = 600.0) -> Json:
        return await self._run(calls.wait(model, timeout, "linear-models"))

    async def linear_model_document(self, model: str) -> bytes:
        return await self._run(calls.download("linear-models", model, "document"))

    # --- predictors ---------------------------------------------------------------------------------------

    async def put_features(self, batch: str, features: Frame, *, id_column: str = "example_id") -> Json:
        return await self._run(calls.put_features(batch, features, id_column))

    async def create_predictor(
        self, batch: str, method: str, epsilon: str, epsilon_cap: str, features: list[Json], **options: Any
    ) -> Json:
        body = {"batch": batch, "method": method, "epsilon": epsilon, "epsilon_cap": epsilon_cap, "features": features}
        return await self._run(calls.post("predictors", body=body | options))

    async def predictors(self) -> list[Json]:
        return await self._run(calls.listing("predictors"))

    async def predictor(self, predictor: str) -> Json:
        return await self._run(calls.get("predictors", predictor))

    async def wait_predictor(self, predictor: str, timeout: float = 600.0) -> Json:
        return await self._run(calls.wait_predictor(predictor, timeout))

    async def predict(self, predictor: str, query: Json) -> bytes:
        return await self._run(calls.predict(predictor, query))

    async def retire_predictor(self, predictor: str) -> Json:
        return await self._run(calls.post("predictors", predictor, "retire"))
