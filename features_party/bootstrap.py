"""Wiring of the services from settings, for the command line and the REST interface; nothing else reads settings."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from features_party.receive.pinned import PinnedKeys
from features_party.settings import Settings
from label_dp.errors import NotFound
from label_dp.installing import require_extra

if TYPE_CHECKING:
    from collections.abc import Callable

    from features_party.models.jobs import Trainings
    from features_party.models.store import Models
    from features_party.models.trainer import Trainer
    from features_party.receive.acceptances import Acceptances
    from features_party.receive.answers import Answers
    from features_party.receive.arrivals import Arrivals
    from features_party.receive.following import Following
    from features_party.receive.messages import Messages
    from features_party.receive.receipts import ReceiptList
    from features_party.storage.file_store import FileStore
    from features_party.storage.home import Home
    from features_party.tables.feature_tables import FeatureTables
    from features_party.telemetry.steps import Steps
    from features_party.telemetry.traces import Traces
    from label_dp.audit.heads import Heads
    from label_dp.audit.store import AuditStore, Clock
    from label_dp.client.budgets import Outgoing
    from label_dp.documents.signing import VerifyingKey
    from label_dp.http.code_flow import CodeFlow
    from label_dp.store.apikeys import ApiKeys
    from label_dp.store.database import Database
    from label_dp.store.faults import FaultHook
    from label_dp.store.idempotency import IdempotencyKeys
    from label_dp.store.sessions import Sessions

ROLES = ("trainer", "auditor")
KEY_PREFIX = "fp"
CLAIM_SECONDS = 1800.0  # longer than any upload or pull takes


@dataclass(frozen=True)
class Services:
    """Services of the features party."""

    settings: Settings
    home: Home
    database: Database
    audit: AuditStore
    heads: Heads
    apikeys: ApiKeys
    pinned: PinnedKeys
    acceptances: Acceptances
    messages: Messages
    answers: Answers
    receipts: ReceiptList
    feature_tables: FeatureTables
    trainer: Trainer
    models: Models
    trainings: Trainings
    sessions: Sessions
    sign_in: CodeFlow | None
    idempotency: IdempotencyKeys
    steps: Steps
    outgoing: Outgoing

    def traces(self) -> Traces | None:
        """Return the traces if a collector is configured. Raises InvalidSettings."""
        if not self.settings.otlp_endpoint:
            return None
        from features_party.telemetry.traces import Traces
        from label_dp.http.application import VERSION

        return Traces.to(self.settings.otlp_endpoint, VERSION, self.settings.revision)

    def arrivals(self, labels_key: VerifyingKey | None = None, actor: str = "cli") -> Arrivals:
        """Return the arrivals of a pull."""
        from features_party.receive.arrivals import Arrivals

        return Arrivals(self.messages, self.answers, self.receipts, labels_key, actor, self.following)

    @property
    def following(self) -> Following:
        """Following of hand-overs from pinned keys."""
        from features_party.receive.following import Following

        return Following(self.database, self.audit, self.pinned)

    def close(self) -> None:
        self.apikeys.wait()
        self.database.dispose()


def loaded(overrides: dict[str, Any] | None = None) -> Settings:
    """Load settings from the environment; `overrides` take precedence. Raises InvalidSettings."""
    return Settings.load().model_copy(update=overrides)


def bootstrap(
    settings: Settings | None = None,
    *,
    existing: bool = False,
    chosen: dict[str, Any] | None = None,
    faults: FaultHook | None = None,
    clock: Clock | None = None,
) -> Services:
    """Build all services on a prepared home and a migrated database. `existing` refuses to make a new home; `chosen`:
    settings in place of those of the environment. Raises InvalidSettings, Unavailable, NotFound,
    ImportError."""
    require_extra("features-party")
    # imported here: reading a message needs none of it
    from features_party.models.jobs import Trainings
    from features_party.models.store import Models
    from features_party.models.trainer import Trainer
    from features_party.receive.acceptances import Acceptances
    from features_party.receive.answers import Answers
    from features_party.receive.messages import Messages
    from features_party.receive.receipts import ReceiptList
    from features_party.storage import tables
    from features_party.storage.home import Home
    from features_party.tables.feature_tables import FeatureTables
    from features_party.telemetry.steps import Steps
    from label_dp.audit.heads import Heads
    from label_dp.audit.judged import JudgedStore
    from label_dp.audit.store import utc_now
    from label_dp.client.budgets import Outgoing
    from label_dp.store.apikeys import ApiKeys
    from label_dp.store.database import Database
    from label_dp.store.faults import no_faults
    from label_dp.store.folders import once_a_day
    from label_dp.store.idempotency import IdempotencyKeys
    from label_dp.store.sessions import Sessions

    settings, clock = (settings or Settings.load()).model_copy(update=chosen), clock or utc_now
    issuer, flow = settings.issuer(ROLES, clock)
    home = Home(settings.home)
    if existing and not home.path.exists():
        raise NotFound(
            f"There is no features party in '{home.path}' yet. Set FEATURES_PARTY_HOME to its folder, or make one with "
            "keygen."
        )
    home.prepare()
    home.own_key()
    place = _places(settings, home, faults)
    database = Database(settings.url, faults=faults or no_faults)
    tables.migrate(database)
    audit = JudgedStore(tables.audit_events, settings.name, clock)
    pinned = PinnedKeys(home.pinned, clock)
    steps = Steps()
    receipts = ReceiptList(database, audit, home, settings.name)
    acceptances = Acceptances(database, audit, receipts)
    messages = Messages(acceptances, home, place(home.messages), pinned, settings.name, steps)
    feature_tables = FeatureTables(
        database, home, place(home.feature_tables), settings.data_dir, clock, settings.table_bytes
    )
    trainer = Trainer(database, audit, home.own_key, clock, settings.threads, steps)
    models = Models(database, place(home.models), home.own_key, signers(settings))
    trainings = Trainings(database, home, messages, feature_tables, trainer, models, clock)
    if settings.objects and once_a_day(home.path / ".swept"):
        feature_tables.sweep()
        models.sweep()
    apikeys = ApiKeys(database, tables.api_keys, ROLES, KEY_PREFIX, clock, issuer.verify if issuer else None)
    return Services(
        settings,
        home,
        database,
        audit,
        Heads(tables.seen_heads, clock),
        apikeys,
        pinned,
        acceptances,
        messages,
        Answers(acceptances, place(home.answers), pinned, settings.name),
        receipts,
        feature_tables,
        trainer,
        models,
        trainings,
        Sessions(apikeys, tables.sessions),
        flow,
        IdempotencyKeys(database, tables.idempotency, partial(home.keyed, "idempotency"), CLAIM_SECONDS),
        steps,
        Outgoing(),
    )


def _places(settings: Settings, home: Home, faults: FaultHook | None) -> Callable[[Path], FileStore]:
    """Return how rooms of the home are stored. Raises InvalidSettings, Unavailable."""
    from features_party.storage.file_store import KeptHere, KeptInStore

    if not settings.objects:
        return KeptHere
    from label_dp.store.faults import no_faults
    from label_dp.store.objects.address import Address, bucket_of
    from label_dp.store.objects.store import StoreObjects

    setting = "FEATURES_PARTY_OBJECTS"
    store = bucket_of(Address.parse(settings.objects, setting), setting, faults or no_faults)

    def place(room: Path) -> FileStore:
        objects = StoreObjects(store.below(room.name), home.spill, partial(home.keyed, "objects"))
        return KeptInStore(room, objects, home.spill / f"kept-{room.name}")

    return place


def reader(settings: Settings | None = None) -> tuple[Settings, PinnedKeys]:
    """Return settings and trusted keys, without making a home or a database, for `verify`, `evaluate` and `predict`."""
    settings = settings or Settings.load()
    return settings, PinnedKeys(Path(settings.home) / "keys" / "pinned")


def signers(settings: Settings) -> list[VerifyingKey]:
    """Return the keys whose models are loaded: our own, if there is one yet, and the one that is set."""
    from label_dp.documents.signing import VerifyingKey

    own = Path(settings.home) / "keys" / "signing.pub"
    return [VerifyingKey.load(file) for file in (own, settings.model_key) if file and (file != own or file.exists())]
