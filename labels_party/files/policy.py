"""An organisation's policy, applied: what a file would change, in sentences, and the change in one transaction.

The ceilings stand in audit events (rule 22 of a chain); populations and bodies are declared as by their own commands,
and rules that were declared never change.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sqlalchemy.engine import Connection

from label_dp.actors import COMMAND_LINE
from label_dp.audit.ceilings import NAMES, Ceilings
from label_dp.audit.events import BATCH_SEALED, PEOPLE_DECLARED, POLICY_APPLIED, POLICY_PROPOSED, Event
from label_dp.audit.policies import policy_rules
from label_dp.documents.canonical import canonical_bytes, digest
from label_dp.documents.registry import KINDS
from label_dp.errors import Conflict, InvalidInput
from label_dp.privacy import ZERO, Epsilon, parse_delta
from label_dp.schemas.json_types import JsonObject
from label_dp.schemas.policy import Policy, PolicyAllowance, PolicyCeilings
from label_dp.schemas.population import People, Population
from labels_party.bootstrap import Services
from labels_party.files.inputs import toml_as
from labels_party.ledger.ceilings import loosen
from labels_party.ledger.people import declaration
from labels_party.ledger.populations import declare
from labels_party.mechanisms.auto import AUTO
from labels_party.mechanisms.catalogue import MECHANISMS


@dataclass(frozen=True)
class PolicyStep:
    """Step of a policy: what it does, in a sentence, and whether it is there already, changes, or waits for a second
    person."""

    state: Literal["same", "change", "waits"]
    what: str


def ceilings_of(ceilings: PolicyCeilings) -> Ceilings:
    """Parse the ceilings of a file. Raises InvalidInput and its kinds."""
    names = None if ceilings.mechanisms is None else tuple(sorted(set(ceilings.mechanisms)))
    allowed = {AUTO, *MECHANISMS, *KINDS}
    if unknown := sorted(set(names or ()) - allowed):
        raise InvalidInput(f"There is no mechanism or answer '{unknown[0]}'; there are {', '.join(sorted(allowed))}.")
    amounts = ceilings.model_dump(exclude={"mechanisms", "delta_per_release"})
    nano = {
        name: None if text is None else Epsilon.parse(text, name=f"ceilings.{name}").nano
        for name, text in amounts.items()
    }
    delta = None if ceilings.delta_per_release is None else parse_delta(ceilings.delta_per_release)
    return Ceilings(**nano, delta_per_release=delta, mechanisms=names)


def read_policy(path: Path) -> Policy:
    """Read a policy from a TOML file. Raises InvalidFile, InvalidRequest."""
    return toml_as(path, Policy)


def apply(services: Services, policy: Policy, actor: str, dry_run: bool = False) -> list[PolicyStep]:
    """Make what a policy says, or raise and make nothing. Loosened ceilings are proposed by the first person and
    applied by a second one, who applies the same file. Raises Conflict (declared otherwise before), InvalidInput and
    its kinds."""
    run = _Run(services, policy, actor, dry_run)
    return services.database.write("policy.apply", run.undone if dry_run else run.steps)


def in_force(services: Services) -> JsonObject:
    """Return the ceilings in force, looser policies that wait for a second person, and a sentence of both."""
    part = services.database.read("policy.look", lambda c: policy_rules(services.audit, c))
    waits = [{"policy": name, "proposed_by": event.actor} for name, event in part.proposals.items()]
    sentence = f"Every charge is held to: {part.ceilings}." + "".join(
        f" Policy {one['policy'][:12]}… is looser, proposed by {one['proposed_by']}, and waits for somebody else to "
        "apply it."
        for one in waits
    )
    return {"policy": part.policy, "ceilings": part.ceilings.as_json(), "waiting": waits, "sentence": sentence}


@dataclass(frozen=True)
class _Run:
    """One application of a policy."""

    services: Services
    policy: Policy
    actor: str
    rehearsal: bool

    def undone(self, connection: Connection) -> list[PolicyStep]:
        """Return the steps, made and undone."""
        savepoint = connection.begin_nested()
        try:
            return self.steps(connection)
        finally:
            savepoint.rollback()

    def steps(self, connection: Connection) -> list[PolicyStep]:
        return [
            *(self._body(connection, body) for body in self.policy.people),
            *(self._population(connection, population) for population in self.policy.populations),
            self._ceilings(connection),
            *(self._allowance(connection, allowance) for allowance in self.policy.allowances),
        ]

    def _body(self, connection: Connection, body: People) -> PolicyStep:
        rules = declaration(body)
        name = str(rules["name"])
        declared = self.services.audit.events(connection, kind=PEOPLE_DECLARED, limit_of=name)
        if not declared:
            self.services.ledger.people.declare(connection, rules, self.actor)
            lifetime = rules["lifetime_epsilon"]
            return PolicyStep("change", f"the body of people '{name}' is declared, lifetime ε {lifetime} of a person")
        if dict(declared[0].details) != rules:
            raise Conflict(f"The body of people '{name}' was declared with other rules, which never change.")
        return PolicyStep("same", f"the body of people '{name}'")

    def _population(self, connection: Connection, population: Population) -> PolicyStep:
        new = declare(population)
        if self.services.populations.declared(connection, new) is not new:
            return PolicyStep("same", f"population '{new.name}'")
        self.services.populations.create(connection, new, self.actor)
        receivers = ", ".join(new.audiences)
        return PolicyStep(
            "change", f"population '{new.name}' is declared, lifetime ε {new.lifetime} per example, for {receivers}"
        )

    def _ceilings(self, connection: Connection) -> PolicyStep:
        audit, actor = self.services.audit, self.actor
        new, name = ceilings_of(self.policy.ceilings), digest(canonical_bytes(self.policy.model_dump(mode="json")))
        part = policy_rules(audit, connection)
        before = part.ceilings
        if new == before and name == part.policy:
            return PolicyStep("same", f"the ceilings ({new})")
        details: dict[str, object] = {"policy": name, "ceilings": new.as_json()}
        proposal, loosened = part.proposals.get(name), new.looser(before)
        if loosened and actor == COMMAND_LINE and not self.rehearsal:
            raise InvalidInput(
                "This policy loosens a ceiling, which two people do; nothing was applied. Say who you are: --as NAME."
            )
        if loosened and (proposal is None or proposal.actor.casefold() == actor.casefold()):
            if proposal is None:
                audit.append(connection, Event(POLICY_PROPOSED, actor=actor, details=details))
            what = ", ".join(NAMES[ceiling] for ceiling in loosened)
            second = "somebody else applies this same file, or the policy on the page Approvals, then it holds"
            return PolicyStep("waits", f"looser than today: {what}; {second}")
        if loosened:
            loosen(audit, connection, name, actor, people=self.services.decisions.people)
        else:
            details["proposed_by"] = None if proposal is None else proposal.actor
            audit.append(connection, Event(POLICY_APPLIED, actor=actor, details=details))
        if new == before:
            return PolicyStep("change", f"the same ceilings, noted under the digest of this file ({name[:12]}…)")
        by_two = "" if proposal is None else f", proposed by {proposal.actor}"
        return PolicyStep("change", f"from now on every charge is held to: {new}; before: {before}{by_two}")

    def _allowance(self, connection: Connection, allowance: PolicyAllowance) -> PolicyStep:
        services, kind = self.services, allowance.answer
        population, epsilon = (
            services.populations.get(connection, allowance.population),
            Epsilon.parse(allowance.epsilon),
        )
        if kind not in KINDS:
            raise InvalidInput(f"There is no answer '{kind}'; there are {', '.join(sorted(KINDS))}.")
        seals = services.audit.events(connection, kind=BATCH_SEALED, population=population.id)
        batches = [str(event.subject.batch) for event in seals]
        changed = [name for name in batches if self._allowed(connection, name, kind, epsilon)]
        what = f"audiences may charge ε {epsilon} of a batch of '{population.name}' for {kind}"
        later = "batches sealed later get it when the file is applied again"
        count = f"{len(changed)} of {len(batches)} batches change"
        return PolicyStep("change" if changed else "same", f"{what}: {count}; {later}")

    def _allowed(self, connection: Connection, name: str, kind: str, epsilon: Epsilon) -> bool:
        """Set the allowance of a batch that has its labels, if it is another one now; return whether it was."""
        allowances = self.services.allowances
        batch, population = self.services.batches.get(connection, name)
        if batch.state != "sealed" or (allowances.of(connection, name, kind) or ZERO) == epsilon:
            return False
        allowances.put(connection, batch, population, kind, epsilon, self.actor)
        return True
