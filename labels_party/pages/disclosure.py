"""Officer's pack of a population: an entry for a public registry, NIST SP 800-226 as a table, an annex for an impact
assessment, each with its signature beside it."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy.engine import Connection

from label_dp.audit import events
from label_dp.audit.policies import policy_rules
from label_dp.documents.answer import Answer
from label_dp.documents.manifest import Manifest
from label_dp.documents.report import signature_of
from label_dp.errors import Conflict, InvalidInput
from label_dp.pages.report import envelope_of, render
from label_dp.schemas.filters import GivenFilter
from label_dp.schemas.json_types import JsonObject
from label_dp.schemas.replies import GivenOut
from label_dp.store.output_files import replacing, writable
from labels_party.bootstrap import Services
from labels_party.pages.deployment_entry import as_yaml, deployment_entry, problems
from labels_party.pages.disclosure_rows import QUESTIONS, Disclosure
from labels_party.pages.report import all_holdings
from labels_party.work.kind import RELEASES, WorkFile
from labels_party.work.overview import summaries

ENTRY, TABLE, ANNEX = "deployment.yaml", "sp800-226.html", "dpia-annex.html"
NAMES = {
    ENTRY: "Entry for the registry of deployments",
    TABLE: "NIST SP 800-226",
    ANNEX: "Annex for a data protection impact assessment",
}


def disclose(
    party: Services, population: str, out: Path, *, curator: str, region: str, force: bool = False
) -> JsonObject:
    """Write the pack of a population to the new folder `out`: all of it or nothing. Raises NotFound, Conflict (nothing
    published), InvalidInput, VerificationFailed or InvalidFile (a document was changed)."""
    writable(out, force)
    _require_own(out)
    facts = gather(party, population)
    entry = deployment_entry(facts, curator, region)
    if wrong := [*problems(entry)]:
        raise InvalidInput(f"The entry would not fit the registry's schema: {' '.join(wrong)}")
    documents = {
        ENTRY: as_yaml(entry),
        TABLE: _page(facts, TABLE, "sp800_226"),
        ANNEX: _page(facts, ANNEX, "dpia_annex"),
    }
    same = {"party": "labels-party", "made": facts.day, "events": facts.length, "head": facts.head}
    with replacing(out, force) as folder:
        folder.mkdir()
        for name, text in documents.items():
            data, about = text.encode("utf-8"), f"{NAMES[name]}: {facts.population.name}"
            (folder / name).write_bytes(data)
            signature_of(folder / name).write_bytes(envelope_of(data, party.key.now(), same | {"about": about}))
    spent = {name: facts.summary[name] for name in ("spent", "lifetime", "per_unit")}
    figures = {name: facts.summary[name] for name in ("delta_spent", "delta_lifetime", "releases", "answers")}
    pack = {"folder": str(out), "files": [*documents], "population": facts.population.name, "epsilon": spent}
    return pack | figures | {"events": facts.length, "head": facts.head, "key_id": facts.key_id}


def gather(party: Services, name: str) -> Disclosure:
    """Read the facts of a population from ledger, audit store and signed documents. Raises as `disclose`."""

    def look(connection: Connection) -> tuple[dict[str, object], list[tuple[GivenOut, list[WorkFile]]]]:
        population = party.populations.get(connection, name)
        of_population = GivenFilter(population=population.id, state="published")
        published = list(all_holdings(connection, party.work, of_population))
        if not published:
            raise Conflict(
                f"Nothing of population '{population.name}' was published yet, so there is nothing to disclose. Make a "
                "release first."
            )
        length, head = party.audit.verify(connection)
        summary = summaries(connection, [population])[0]
        values: dict[str, object] = {
            "population": population,
            "other_labels": party.populations.other_labels(connection, population.label),
            "summary": summary | {"batches": summary["batches"] - summary["open"]},  # an open one has given nothing yet
            "published": published,
            "people": None if population.people is None else party.ledger.people.report(connection, population.people),
            "ceilings": str(policy_rules(party.audit, connection).ceilings),
            "purges": len(party.audit.events(connection, kind=events.BATCH_PURGED, population=population.id)),
            "erasures": len(party.audit.events(connection, kind=events.ERASED, population=population.id)),
            "length": length,
            "head": head,
        }
        newest = {row["kind"]: row for row in published}  # of an answer, its kind's newest says which mechanism
        readable = [row for row in published if row["family"] == RELEASES.noun or newest[row["kind"]] is row]
        return values, [(row, party.work.listed_files(connection, row["id"])) for row in readable]

    values, documents = party.database.read("disclose", look)
    manifests: list[Manifest] = []
    answers: list[Answer] = []
    for row, files in documents:
        if not files:
            continue
        envelope = party.work.read(files[0])
        key = party.own_keys.of(envelope)
        if row["family"] == RELEASES.noun:
            manifests.append(Manifest.trusted(envelope, key, None)[0])
        else:
            answers.append(Answer.trusted(envelope, key, None)[0])
    return Disclosure(
        **values,  # type: ignore[arg-type]  # named as its members above
        manifests=manifests,
        answers=answers,
        lost_files=sum(not files for _, files in documents),
        day=party.audit.now()[:10],
        key_id=party.key.now().public.id,
    )


def _page(facts: Disclosure, name: str, template: str) -> str:
    return render(
        "labels_party.pages",
        template,
        title=f"{NAMES[name]}: {facts.population.name}",
        made=facts.day,
        by=f"by the labels party, which signs with {facts.key_id}.",
        facts=facts,
        questions=QUESTIONS,
        file=name,
        events=facts.length,
        head=facts.head,
        beside=signature_of(Path(name)).name,
        key_id=facts.key_id,
    )


def _require_own(out: Path) -> None:
    """Refuse to replace a folder that holds anything but a pack."""
    own = {path.name for name in NAMES for path in (Path(name), signature_of(Path(name)))}
    if out.is_dir() and (other := sorted(path.name for path in out.iterdir() if path.name not in own)):
        raise InvalidInput(
            f"The folder '{out}' holds '{other[0]}', which is no file of a pack, and would be lost; choose another "
            "folder."
        )
    if out.is_file():
        raise InvalidInput(f"'{out}' is a file, and a pack is a folder; choose another name.")
