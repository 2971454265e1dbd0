"""A message: one envelope with the signed manifest, its clipping, and the files whose digests it lists."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from .channels import check_channel
from .document import COMMON, MOST_BYTES, check_common, check_format, check_split
from .domains import Domain
from .envelope import open_envelope, parse, read
from .exact import NANO, units
from .files import check_files, check_list
from .members import count, listed, matching, members, one_of, perhaps, text
from .refusal import refuse

DECLARED, BOUGHT = "declared public by the owner", "bought with ε_clip"
QUANTILE = re.compile(r"0\.[0-9]{0,8}[1-9]", re.ASCII)
CLIPPING = ("quantiles", "bounds", "epsilon", "public_domain", "mechanism")
MECHANISM = "exponential mechanism on ranks"
MANIFEST_TYPE = "application/vnd.label-dp.manifest+json"
REHEARSAL_TYPE = "application/vnd.label-dp.rehearsal+json"
MADE_UP = "a rehearsal: labels and noise are made up, no label of anybody is in it, and no ε is spent"
MAX_MANIFEST = 3 << 19  # bytes of the envelope
MEMBERS = {*(*COMMON, "domain_source", "presence", "loss", "channel", "expected_loss", "prior", "clipping", "files")}
PRESENCE = ("id list given before labels counted", DECLARED)
ESTIMATED = "estimated"
SOURCES = (ESTIMATED, DECLARED, "carried over", "uniform", "not used")
ADJACENCY = "replace one example's label"


def check_clipping(m: Any, domain: Domain) -> list[str]:
    """A line for the bounds of the manifest `m`, where it has some; without them no ε may have gone into any."""
    nano = units(m["epsilon"]["clip"], NANO, "ε of part clip")
    if m["clipping"] is None:
        if nano != 0 or m["domain_source"] != DECLARED:
            refuse("ε was spent on clipping bounds that are not stated")
        return []
    clipping = members(m["clipping"], CLIPPING, "what was bought with ε_clip")
    if m["domain_source"] != BOUGHT or nano == 0 or units(clipping["epsilon"], NANO, "ε of the bounds") != nano:
        refuse("the ε of the clipping bounds is not the split's")
    if clipping["mechanism"] != MECHANISM:
        refuse("the mechanism that bought the clipping bounds is unknown")
    quantiles = listed(clipping["quantiles"], 1, 2, "the list of clip quantiles")
    numbers = [Fraction(matching(text, QUANTILE, "a clip quantile")) for text in quantiles]
    if len(numbers) == 2 and numbers[0] >= numbers[1]:
        refuse("the clip quantiles do not rise")
    first = _place(domain, Domain(clipping["public_domain"]))
    if domain.names or domain.k < 2 or (len(quantiles) == 1 and first != 0):
        refuse("the label domain has other ends than those that were bought")
    if clipping["bounds"] != [domain.text(0), domain.text(domain.k - 1)][-len(quantiles) :]:
        refuse("the clipping bounds are not the ends of the label domain, in their one spelling")
    at = "quantile" if len(quantiles) == 1 else "quantiles"
    bought = f"bought at the {at} {' and '.join(quantiles)} for ε {clipping['epsilon']}"
    return [f"labels clipped at {' and '.join(clipping['bounds'])}, {bought}"]


def _place(part: Domain, public: Domain) -> int:
    """Where `part` begins in `public`, of which it is a part without gaps."""
    if bool(part.texts) != bool(public.texts):
        refuse("the label domain is not a part of the declared one")
    if part.texts:
        first = public.values.index(part.low) if part.low in public.values else public.k
        inside = public.values[first : first + part.k] == part.values
    else:
        start = (part.low - public.low) / public.step
        first = int(start)
        inside = start.denominator == 1 and first >= 0 and part.step == public.step and part.high <= public.high
    if not inside:
        refuse("the label domain is not a part of the declared one")
    return first


def verify_message(
    path: Path, key: Ed25519PublicKey, key_id: str, audience: str | None, *, rehearsal: bool = False
) -> list[str]:
    """What was checked, a line each: the signature, the split of ε, the channel's ε, the digest of every file. A
    rehearsal is refused, or, with `rehearsal`, everything else is."""
    folder = path.is_dir()
    envelope_path = path / "manifest.dsse.json" if folder else path.with_name(path.name + ".dsse.json")
    envelope = read(envelope_path, MAX_MANIFEST)
    manifest, said = open_manifest(envelope, key, key_id, audience, rehearsal=rehearsal)
    return said + check_files(manifest, path, folder)


def open_manifest(
    envelope: bytes, key: Ed25519PublicKey, key_id: str, audience: str | None, *, rehearsal: bool = False
) -> tuple[dict[str, Any], list[str]]:
    """The manifest in an envelope, and what was checked of it; its files are not looked at."""
    payload = open_envelope(envelope, key, key_id, REHEARSAL_TYPE if rehearsal else MANIFEST_TYPE)
    if len(payload) > MOST_BYTES:
        refuse("the manifest is larger than one can be")
    m = parse(payload, "the manifest")
    check_format(m, "label-dp-rehearsal" if rehearsal else "label-dp-message")
    members(m, MEMBERS, "the manifest")
    check_common(m, key_id, audience, "message")
    said = [f"signature of {key_id}", f"release {m['id']} of batch {m['batch']}, {m['n']} examples"]
    (_, prior, randomize, delta), line = check_split(m)
    if delta != 0:
        refuse("a message spends no δ")
    _check_words(m, prior)
    if rehearsal:
        _check_made_up(m)
        said.insert(0, "a REHEARSAL: its labels are made up, and the ε below is spent by nobody")
    domain = Domain(m["domain"])
    check_list(m, domain.k)
    clipped = check_clipping(m, domain)
    return m, [*said, line, "channel: " + check_channel(m["channel"], domain, randomize), *clipped]


def _check_words(m: Any, prior: int) -> None:
    one_of(m["domain_source"], (DECLARED, BOUGHT), "the source of the domain")
    one_of(m["presence"], PRESENCE, "the rule of presence")
    text(members(m["mechanism"], ("name", "why"), "the mechanism")["name"], "the mechanism")
    text(m["mechanism"]["why"], "the reason for the mechanism", least=0, most=2000)
    text(m["loss"], "the loss")
    perhaps(m["expected_loss"], "the expected loss")
    one_of(
        members(m["prior"], ("source", "method", "cells", "release"), "the prior")["source"],
        SOURCES,
        "the prior's source",
    )
    perhaps(m["prior"]["method"], "the prior's method")
    perhaps(m["prior"]["release"], "the prior's release")
    if m["prior"]["cells"] is not None:
        count(m["prior"]["cells"], 1, 1 << 53, "the number of the prior's cells")
    if (m["prior"]["source"] == ESTIMATED) != (prior > 0):
        refuse("ε_prior is not that of a prior that was estimated")
    if m["adjacency"] != ADJACENCY:
        refuse("neighbouring data sets are not those of a message")


def _check_made_up(m: Any) -> None:
    if m["randomness"] != MADE_UP:
        refuse("a rehearsal does not say that its labels are made up")
    if m["prior"]["source"] != "not used" or m["clipping"] is not None or m["batch"] != m["id"]:
        refuse("a rehearsal has neither a prior nor bounds, and is its own batch")
