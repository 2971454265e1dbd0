"""The only place that reads settings and wires the services. Command line and REST interface both start here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from features_party.feature_tables import FeatureTables
from features_party.intake.accept import Intake
from features_party.intake.answers import AnswerIntake
from features_party.intake.pinned import PinnedKeys
from features_party.intake.receipts import Receipts
from features_party.jobs import Trainings
from features_party.registry.models import Models
from features_party.settings import Settings
from features_party.storage import tables
from features_party.storage.home import Home
from features_party.storage.idempotency import Idempotency
from features_party.trainer import Trainer
from shared.audit.store import AuditStore, Clock, utc_now
from shared.errors import NotFound
from shared.service.apikeys import ApiKeys
from shared.service.database import Database
from shared.service.faults import FaultHook, no_faults

ROLES = ("trainer", "auditor")
KEY_PREFIX = "fp"


@dataclass(frozen=True)
class Services:
    settings: Settings
    home: Home
    database: Database
    audit: AuditStore
    apikeys: ApiKeys
    pinned: PinnedKeys
    intake: Intake
    answers: AnswerIntake
    receipts: Receipts
    feature_tables: FeatureTables
    trainer: Trainer
    models: Models
    trainings: Trainings
    idempotency: Idempotency

    def close(self) -> None:
        self.database.dispose()


def bootstrap(
    settings: Settings | None = None, *, existing: bool = False, faults: FaultHook = no_faults, clock: Clock = utc_now
) -> Services:
    """All services on a prepared home and a migrated database.

    `existing` refuses to make a new home. Raises InvalidSettings, Unavailable, NotFound.
    """
    settings = settings or Settings.load()
    home = Home(settings.home)
    if existing and not home.path.exists():
        raise NotFound(
            f"There is no features party in '{home.path}' yet. Set FEATURES_PARTY_HOME to its folder, or make one with "
            "keygen."
        )
    home.prepare()
    home.own_key()
    database = Database(settings.url, faults=faults)
    tables.migrate(database)
    audit = AuditStore(tables.audit_events, settings.name, clock)
    pinned = PinnedKeys(home.pinned)
    receipts = Receipts(database, audit, home, settings.name)
    intake = Intake(database, audit, home, pinned, settings.name, receipts)
    feature_tables = FeatureTables(database, home, settings.data_dir, clock)
    trainer = Trainer(database, audit, clock, settings.threads)
    models = Models(database, home)
    trainings = Trainings(database, home, intake, feature_tables, trainer, models, clock)
    apikeys = ApiKeys(database, tables.api_keys, ROLES, KEY_PREFIX, clock)
    return Services(
        settings,
        home,
        database,
        audit,
        apikeys,
        pinned,
        intake,
        AnswerIntake(database, audit, home, pinned, settings.name, receipts),
        receipts,
        feature_tables,
        trainer,
        models,
        trainings,
        Idempotency(database, clock),
    )


def reader(settings: Settings | None = None) -> tuple[Settings, PinnedKeys]:
    """What `verify`, `evaluate` and `predict` need: settings and trusted keys, without making a home or a database."""
    settings = settings or Settings.load()
    return settings, PinnedKeys(Path(settings.home) / "keys" / "pinned")
