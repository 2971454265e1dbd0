"""The content of a signed message or answer as one object: everything from the document, nothing from labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from label_dp.channels.lattice import LatticeChannel
from label_dp.channels.subsets import SubsetChannel
from label_dp.documents.heaps import Prior, heaps
from label_dp.documents.manifest import Manifest
from label_dp.documents.registry import KINDS, trusted_answer
from label_dp.documents.signed import ChargedDocument
from label_dp.documents.signing import VerifyingKey
from label_dp.domain import Domain
from label_dp.schemas.json_types import JsonObject


def _shared(document: ChargedDocument) -> JsonObject:
    """What messages and answers both say."""
    return {
        "batch": document.batch,
        "population": document.population.name,
        "label": document.population.label,
        "audiences": list(document.audiences),
        "examples": document.n,
        "epsilon": document.epsilon.as_signed(),
        "epsilon_spent": str(document.epsilon_spent),
        "epsilon_lifetime": str(document.epsilon_lifetime),
        "unit": document.unit_said,
        "key_id": document.key_id,
    }


def of_message(manifest: Manifest, prior: Prior | None = None) -> JsonObject:
    """What a person wants to know of a message. `prior` float64[k]: that of its prior file, if there is one."""
    channel = manifest.read_channel()
    domain = manifest.domain
    data: dict[str, Any] = {
        "release": manifest.id,
        **_shared(manifest),
        "created": manifest.created,
        "domain": str(domain),
        **({"names": list(domain.names)} if domain.names else {}),
        "clipping": None if manifest.clipping is None else manifest.clipping.summary(),
        "mechanism": manifest.mechanism.name,
        "loss": manifest.loss,
        "channel_epsilon": str(channel.epsilon),
        "prior": manifest.prior.source,
        "expected_label_loss": None if manifest.expected_loss is None else float(manifest.expected_loss),
        "outputs": [_output(domain, float(v)) for v in np.unique(channel.outputs)[:64]],
        "heaps": [heap.as_json() for heap in heaps(manifest, prior)],
        **manifest.stated,
    }
    if isinstance(channel, LatticeChannel):
        data["lattice"] = {
            "from": float(channel.outputs[0]),
            "to": float(channel.outputs[-1]),
            "step": channel.lattice_step,
            "outputs": channel.m,
        }
    if isinstance(channel, SubsetChannel):
        data["subsets"] = {"size": channel.d, "of": channel.k, "outputs": channel.m}
    if channel.m == 1:
        data["note"] = "there is one output only, so this message says nothing about single labels; n or ε is too small"
    boundaries = getattr(channel, "boundaries", None)
    if boundaries is not None and not domain.nominal:
        values = domain.values
        ends = [int(b) for b in boundaries]
        data["bins"] = [
            {
                name: _output(domain, float(at))
                for name, at in (("from", values[a]), ("to", values[b - 1]), ("output", v))
            }
            for a, b, v in zip(ends[:-1], ends[1:], channel.outputs, strict=True)
        ]
    return data


def _output(domain: Domain, value: float) -> float | str:
    """An output as it is shown: the name of a class where it stands for one."""
    return domain.text(int(value)) if domain.names and value in domain.values else value


def of_answer(envelope: bytes, key: VerifyingKey) -> JsonObject:
    """What a signed answer of any kind says, once it is verified. Raises the errors of `trusted_answer`."""
    answer, digest = trusted_answer(envelope, key, None)
    said: dict[str, Any] = {
        "answer": answer.id,
        "kind": answer.kind,
        **_shared(answer),
        "parameters": answer.parameters,
        "sha256": digest,
        "delta_spent": str(answer.delta_spent),
        "delta_lifetime": str(answer.delta_lifetime),
        "adjacency": answer.adjacency,
        "facts": answer.mechanism.facts,
    }
    return {**said, **KINDS[answer.kind].shown(answer)}
