"""A warm start: choices of a model of other labels, such as yesterday's, that need not be searched again.

Its choices are taken over, never its predictions; weights and sizes come from the new labels, and a crossing or a
member without support in them is left out as usual. The new model then depends on the messages of the other one, too,
and says so in its notes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from features_party.training.model import TrainedModel
from label_dp.errors import InvalidInput

SHOWN = 10


@dataclass(frozen=True)
class Warm:
    """The members of an ensemble by name (None: it was not validated) and the names of its crossings; `note` names
    their source."""

    members: frozenset[str] | None
    crossings: frozenset[str]
    note: str

    @classmethod
    def of(cls, model: TrainedModel, kind: str, loss: str, releases: Sequence[str]) -> Warm:
        """Take the choices for a training of a model `kind` under `loss`; `releases` are those that `model` was trained
        on.

        Raises InvalidInput if its kind or loss differ, or if its kind makes no choices.
        """
        if (model.kind, model.loss) != (kind, loss) or model.classes is not None or kind not in ("ensemble", "trees"):
            of = "of classes" if model.classes is not None else f"'{model.kind}' under the {model.loss} loss"
            raise InvalidInput(
                "A warm start takes over what an earlier model 'ensemble' or 'trees' of the same loss looked for. This "
                f"training is '{kind}' under the {loss} loss, and the earlier model is {of}; leave the warm start out."
            )
        members = frozenset(str(one["name"]) for one in model.body.members() if one["weight"] > 0.0)
        names = ", ".join(releases[:SHOWN]) + (f" and {len(releases) - SHOWN:,} more" if len(releases) > SHOWN else "")
        note = (
            "members and crossed effects were looked for among those of an earlier model alone, so this one depends on "
            f"the messages of that one, too: {names}"
        )
        return cls(members or None, frozenset(one.name for one in model.schema.crossings), note)
