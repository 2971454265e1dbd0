"""The models that users can request: each is the module of its name here and its name in
`label_dp.schemas.training`."""

from __future__ import annotations

from importlib import import_module
from typing import get_args

from features_party.training.learner import Learner
from label_dp.errors import InvalidInput
from label_dp.schemas.training import Learning

MODELS: tuple[str, ...] = get_args(Learning.model_fields["model"].annotation)


def learner(model: str) -> type[Learner]:
    """Return the class of a model. Raises InvalidInput."""
    if model not in MODELS:
        raise InvalidInput(f"There is no model '{model}'; choose one of {', '.join(MODELS)}.")
    kind: type[Learner] = import_module(f"{__name__}.{model}").LEARNER
    return kind
