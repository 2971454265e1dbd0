"""The one place where the labels party is put together; API and command line are thin siblings over `Services`.

What only some commands need is put together, and imported, when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.audit.heads import Heads
from label_dp.audit.judged import JudgedStore
from label_dp.audit.store import AuditStore, utc_now
from label_dp.documents.signing import SigningKey
from label_dp.errors import InvalidSettings, NotFound, Unavailable
from label_dp.installing import require_extra
from label_dp.named_modules import NamedModules, installed
from label_dp.store.apikeys import ApiKeys
from label_dp.store.database import Database
from label_dp.store.faults import FaultHook, no_faults
from label_dp.store.idempotency import IdempotencyKeys
from label_dp.store.macs import LABELS_PREFIX
from label_dp.store.migrations import prepare
from label_dp.store.objects.folder import FolderObjects
from label_dp.store.objects.port import Objects
from label_dp.store.sessions import Sessions
from labels_party.labels.aside import SetAside
from labels_party.labels.batch_keys import BatchKeys
from labels_party.labels.batch_uses import ACCEPTED, WORKING
from labels_party.labels.batches import RUNS, SEALED, Batches, timestamp
from labels_party.labels.erasures import Erasures
from labels_party.labels.events.intake import EventIntake
from labels_party.labels.events.labels import EventLabels
from labels_party.labels.events.windows import EventWindows
from labels_party.labels.intake import Intake
from labels_party.labels.key_service import FileKeys, KeyService
from labels_party.labels.seal import Sealer
from labels_party.labels.sorting import LabelSort
from labels_party.labels.sweep import Sweep
from labels_party.labels.unit_erasures import UnitErasures
from labels_party.labels.vault import LabelVault
from labels_party.ledger.populations import Populations
from labels_party.ledger.store import Ledger
from labels_party.message.kind import MessageKind
from labels_party.message.priors import PublishedPriors
from labels_party.message.schedule import Scheduler
from labels_party.notify.addresses import AddressRules
from labels_party.notify.outbox import Outbox
from labels_party.notify.sender import Sender
from labels_party.notify.webhooks import Webhooks
from labels_party.settings import Settings
from labels_party.storage import tables
from labels_party.storage.files import Home
from labels_party.storage.secrets import Secrets
from labels_party.storage.signing import FiledKey
from labels_party.storage.tables import predictions as predictions_table
from labels_party.storage.tables import work as work_table
from labels_party.work.allowances import Allowances
from labels_party.work.decisions import Decisions
from labels_party.work.fetches import Fetches
from labels_party.work.identity import Workplace
from labels_party.work.leases import Leases
from labels_party.work.own_keys import OwnKeys
from labels_party.work.pipeline import Pipeline
from labels_party.work.receipts import ReceiptBook
from labels_party.work.retention import Retention
from labels_party.work.shelf import FolderShelf, Shelf
from labels_party.work.store import Works
from labels_party.work.worker import ReleaseWorker

if TYPE_CHECKING:
    from label_dp.http.code_flow import CodeFlow
    from labels_party.message.engine import Engine
    from labels_party.message.statement import Statements
    from labels_party.work.figures import Figures


MIGRATIONS = Path(__file__).parent / "storage" / "migrations"
ANSWER_KINDS: NamedModules[Any] = NamedModules("labels_party.companions.kinds")
ROLES = ("owner", "ingest", "features", "auditor", "approver")


@dataclass(frozen=True)
class Services:
    """Everything the API and the command line call."""

    settings: Settings
    home: Home
    database: Database
    secrets: Secrets
    key: SigningKey
    own_keys: OwnKeys
    audit: AuditStore
    heads: Heads
    populations: Populations
    keys: BatchKeys
    batches: Batches
    vault: LabelVault
    intake: Intake
    events: EventIntake
    set_aside: SetAside
    sealer: Sealer
    ledger: Ledger
    work: Works
    decisions: Decisions
    leases: Leases
    receipts: ReceiptBook
    fetches: Fetches
    priors: PublishedPriors
    schedule: Scheduler
    retention: Retention
    erasures: Erasures
    unit_erasures: UnitErasures
    sweep: Sweep
    pipeline: Pipeline
    allowances: Allowances
    message: MessageKind
    cluster: Any  # `label_dp.spark.cluster.Cluster` of the engine 'spark'; None of the local one
    outbox: Outbox
    webhooks: Webhooks
    sender: Sender
    apikeys: ApiKeys
    sessions: Sessions
    sign_in: CodeFlow | None
    idempotency: IdempotencyKeys

    @cached_property
    def statements(self) -> Statements:
        from labels_party.message.statement import Statements

        return Statements(self.work, self.own_keys.of)

    @cached_property
    def companions(self) -> Any:
        """`labels_party.companions.services.Companions`; None if that room is not installed."""
        module = installed("labels_party.companions.services")
        return None if module is None else module.Companions(self)

    @cached_property
    def figures(self) -> Figures:
        from labels_party.work.figures import Figures

        return Figures(self.populations, self.outbox.clock, budgets=bool(self.settings.metrics_port))

    @cached_property
    def worker(self) -> ReleaseWorker:
        return ReleaseWorker(
            # erasures before draws, so that a release that was only charged leaves the erased labels out
            (self.schedule.run_due, self.erasures.finish),
            (self.pipeline.run_due, *(() if self.companions is None else (self.companions.predictors.run_due,))),
            (self.retention.run_due, self.sweep.run_daily),
            self.settings.poll_seconds,
        )

    def close(self) -> None:
        if "worker" in self.__dict__:
            self.worker.stop()
        self.sender.stop()
        self.pipeline.close()
        if self.cluster is not None:
            self.cluster.close()
        for compaction in (self.intake.compaction, self.sealer.compaction):
            compaction.close()
        self.apikeys.wait()
        self.fetches.wait()
        self.database.dispose()


def loaded(chosen: dict[str, Any] | None = None) -> Settings:
    """Settings from the environment, and `chosen` before it. Raises InvalidSettings."""
    return Settings.load().model_copy(update=chosen)


def bootstrap(
    settings: Settings | None = None,
    *,
    existing: bool = False,
    chosen: dict[str, Any] | None = None,
    faults: FaultHook = no_faults,
    clock: Callable[[], datetime] = utc_now,
) -> Services:
    """Services on the home folder and database of `settings` (default: from the environment), migrated to this version.

    `existing` refuses to make a new home; `chosen`: settings by an option of a command. Raises
    InvalidSettings, Unavailable, NotFound, ImportError.
    """
    require_extra("labels-party")
    settings = (settings or Settings.load()).model_copy(update=chosen)
    issuer, flow = settings.issuer(ROLES, clock)
    if settings.four_eyes == "people" and issuer is None:
        raise InvalidSettings("LABELS_PARTY_FOUR_EYES=people needs LABELS_PARTY_OIDC_ISSUER, which says who they are.")
    home = Home(settings.home)
    if existing and not home.secret_path.parent.exists():
        raise NotFound(
            f"There is no labels party in '{home.path}' yet. Set LABELS_PARTY_HOME to its folder, or make one with "
            "keygen."
        )
    home.prepare()
    home.sweep()
    settings.keep_kernels()
    database = Database(settings.url, faults=faults)
    try:
        prepare(database, MIGRATIONS, tables.HEAD, tables.metadata, tables.APPEND_ONLY)
        wrapping = key_service(settings, home)
        _check_keys(database, home, wrapping)
        secrets, audit = wrapping.secret(), JudgedStore(tables.audit_events, "labels-party", clock)
        own_keys = _own_keys(database, audit, home)
        key = own_keys.key
        _check_secret(database, secrets, wrapping)
        keys = BatchKeys(database, wrapping)
        keys.clear()
        kept = _kept(settings, home, secrets, keys, faults, clock)
        _check_age(database, home, kept[1])
        _check_objects(database, kept[0])
    except BaseException:
        database.dispose()
        raise
    populations = Populations(audit)
    batches = Batches(populations, keys, clock)
    objects, shelf = kept
    vault = LabelVault(objects, keys.of)
    outbox = Outbox(clock)
    ledger = Ledger(audit, outbox)
    allowances = Allowances(database, batches, ledger)
    work = Works(database, batches, ledger, allowances, shelf)
    priors = PublishedPriors(work)
    sort = LabelSort(vault, home.spill, settings.memory_limit_mb)
    workplace, lease = Workplace(home.workers), settings.lease_seconds
    leases = Leases(database, workplace, lease)
    windows = EventWindows(database, batches, keys, vault)
    event_labels = EventLabels(database, windows, vault, secrets, home.spill)
    sealer = Sealer(database, batches, vault, secrets, ledger, sort, event_labels, leases.turn)
    cluster, engine = _engine(settings)
    message = MessageKind(priors, engine, key, settings.rows_per_file)
    work.kinds.register(message)
    pipeline = Pipeline(work, vault, secrets, workplace, lease)
    pipeline.sweep()
    daily = (home.sweep, pipeline.sweep, pipeline.sweep_attempts, windows.retire)
    sweep = Sweep(database, vault, home.path / ".swept", daily)
    sweep.run_daily()
    apikeys = ApiKeys(database, tables.api_keys, ROLES, LABELS_PREFIX, clock, issuer.verify if issuer else None)
    decisions = Decisions(work, apikeys.stands, people=settings.four_eyes == "people")
    schedule = Scheduler(database, batches, sealer, work, message, leases, apikeys.stands)
    retention = Retention(database, batches, decisions, vault, audit, leases)
    erasures = Erasures(database, populations, batches, vault, secrets, audit, clock, leases.hold)
    unit_erasures = UnitErasures(erasures, sealer.units)
    rules = AddressRules(settings.webhook_host_list)
    webhooks = Webhooks(secrets, rules, outbox, clock)
    services = Services(
        settings=settings,
        home=home,
        database=database,
        secrets=secrets,
        key=key,
        own_keys=own_keys,
        audit=audit,
        heads=Heads(tables.seen_heads, clock),
        populations=populations,
        keys=keys,
        batches=batches,
        vault=vault,
        intake=Intake(database, batches, vault, secrets, windows, home.spill),
        events=EventIntake(database, populations, windows, vault, secrets),
        set_aside=SetAside(database, batches, vault, secrets),
        sealer=sealer,
        ledger=ledger,
        work=work,
        decisions=decisions,
        leases=leases,
        receipts=ReceiptBook(work, audit, key.public),
        fetches=Fetches(database, clock),
        priors=priors,
        schedule=schedule,
        retention=retention,
        erasures=erasures,
        unit_erasures=unit_erasures,
        sweep=sweep,
        pipeline=pipeline,
        allowances=allowances,
        message=message,
        cluster=cluster,
        outbox=outbox,
        webhooks=webhooks,
        sender=Sender(database, webhooks, rules, clock, settings.poll_seconds),
        apikeys=apikeys,
        sessions=Sessions(apikeys, tables.sessions),
        sign_in=flow,
        idempotency=IdempotencyKeys(database, tables.idempotency, partial(secrets.keyed, "idempotency")),
    )
    work.kinds.register_later(ANSWER_KINDS, lambda kind: kind.made(services.companions.parts))
    return services


def _kept(
    settings: Settings, home: Home, secrets: Secrets, keys: BatchKeys, faults: FaultHook, clock: Callable[[], datetime]
) -> tuple[Objects, Shelf]:
    """Where labels and files of work are. Raises InvalidSettings, Unavailable."""
    if not settings.objects:
        if settings.objects_signed_urls:
            raise InvalidSettings(
                "LABELS_PARTY_OBJECTS_SIGNED_URLS is for an object store; set LABELS_PARTY_OBJECTS too."
            )
        return FolderObjects(home.labels), FolderShelf(home.work)
    from label_dp.store.objects.address import Address, bucket_of
    from label_dp.store.objects.store import StoreObjects
    from labels_party.work.drafts import Drafts
    from labels_party.work.store_shelf import StoreShelf

    setting = "LABELS_PARTY_OBJECTS"
    store = bucket_of(Address.parse(settings.objects, setting), setting, faults)
    keyed = partial(secrets.keyed, "objects")
    store_objects = StoreObjects(store.below("inputs"), home.spill, keyed)
    drafts = Drafts(StoreObjects(store.below("drafts"), home.spill, keyed), keys.of)
    rooms = (store.below("work"), store.below("begun"), store_objects, drafts)
    shelf = StoreShelf(home.work, *rooms, home.spill, lambda: timestamp(clock()))
    if settings.objects_signed_urls:
        shelf.signed = store.below("work").signed
    return StoreObjects(store.below("labels"), home.spill, keyed), shelf


def _engine(settings: Settings) -> tuple[Any, Engine]:
    """Raises InvalidSettings."""
    # imported here: numba, scipy and opendp behind it are needed by those who draw only
    from labels_party.message.engine import LocalEngine

    if settings.engine == "local":
        return None, LocalEngine()
    spark = installed("labels_party.spark.engine")
    if spark is None:
        raise InvalidSettings("The engine 'spark' is not installed; take the local engine.")
    engine = spark.engine_of(settings)
    return engine.cluster, engine


def key_service(settings: Settings, home: Home) -> KeyService:
    """Who holds the wrapping keys and the secret of digests. Raises InvalidSettings."""
    if settings.key_service == "file":
        return FileKeys(home)
    from labels_party.labels.pkcs11_keys import TokenKeys

    if not (settings.pkcs11_module and settings.pkcs11_token and settings.pkcs11_pin):
        raise InvalidSettings(
            "LABELS_PARTY_KEY_SERVICE=pkcs11 needs LABELS_PARTY_PKCS11_MODULE, LABELS_PARTY_PKCS11_TOKEN and "
            "LABELS_PARTY_PKCS11_PIN (or _PIN_FILE)."
        )
    if home.secret_path.exists():
        raise InvalidSettings(
            f"'{home.secret_path}' is there: this party began with keys in files, and ids charged before would not be "
            "recognised under another secret. Set LABELS_PARTY_KEY_SERVICE=file, or begin with a new home and database."
        )
    return TokenKeys(settings.pkcs11_module, settings.pkcs11_token, settings.pkcs11_pin.get_secret_value())


def _check_keys(database: Database, home: Home, wrapping: KeyService) -> None:
    """A home whose database is in use must have its keys: new ones would hide that the old ones are lost."""
    used = database.read(
        "installation.look", lambda c: c.execute(sa.select(tables.installation.c.wrapping_key)).scalar()
    )
    if used is None:
        return
    wrapping.require(used)
    if not home.private_key.exists():
        raise Unavailable(
            f"'{home.private_key}' is missing; restore it from the backup of this folder. Nothing was changed."
        )


def _check_secret(database: Database, secrets: Secrets, wrapping: KeyService) -> None:
    """Refuse to work with another secret than the database was made with: charged ids would no longer be recognised. A
    new database gets the first wrapping key."""
    check = secrets.mac("installation", b"label-dp")

    def compare(connection: Connection) -> str:
        stored = connection.execute(sa.select(tables.installation.c.secret_check)).scalar()
        if stored is None:
            connection.execute(sa.insert(tables.installation).values(id=1, secret_check=check, wrapping_key=1))
            return check
        return str(stored)

    stored = database.read(
        "installation.look", lambda c: c.execute(sa.select(tables.installation.c.secret_check)).scalar()
    )
    if stored is None:
        wrapping.make(1)
        stored = database.write("installation.create", compare)
    if stored != check:
        raise Unavailable(
            "The secret (keys/secret.key, or the token's) is not the one this database was made with; restore both "
            "from one backup. "
            "Without it, examples that were charged before would not be recognised."
        )


def _own_keys(database: Database, audit: AuditStore, home: Home) -> OwnKeys:
    """Our signing key, made at the first start. Raises Unavailable where it handed over to one that is not here."""
    home.own_key()
    own_keys = OwnKeys(database, audit, home, FiledKey(home.private_key))
    own_keys.complete()
    return own_keys


def _check_objects(database: Database, objects: Objects) -> None:
    """Refuse another store than the database names objects of: labels would be purged where they are not, and charged
    ids would not be recognised."""
    t = tables.segments
    query = sa.select(t.c.key).where(t.c.kind == RUNS, t.c.of == SEALED).order_by(t.c.key.desc()).limit(1)
    key = database.read("installation.objects", lambda c: c.execute(query).scalar())
    if key is None:
        return
    batch = key.partition("/")[0]
    if all(stored.key != key for stored in objects.listed(f"{batch}/")):
        raise Unavailable(
            f"The digests of batch '{batch}' are not where this party keeps its objects. Set LABELS_PARTY_OBJECTS as "
            "it was, or restore the objects from the newest copy. Nothing was changed."
        )


def _check_age(database: Database, home: Home, shelf: Shelf) -> None:
    """Refuse a database that is older than the files: what was charged and drawn since would be drawn again."""
    there = set(shelf.begun())
    w = work_table  # read after the files: another process may add to both
    query = sa.select(w.c.id, w.c.state, w.c.attempt)
    rows = database.read("installation.work", lambda c: c.execute(query).all())
    unknown = there - {row.id for row in rows}
    unfinished = (row for row in rows if row.state in (ACCEPTED, *WORKING) and row.id in there)
    unknown |= {row.id for row in unfinished if shelf.last_attempt(row.id) > row.attempt}
    given = {path.name: path.stat().st_size for path in home.predictors.glob("prd_*")}
    t, counted = predictions_table, sa.func.count()
    asked = sa.select(t.c.predictor, counted).group_by(t.c.predictor)
    answered = database.read("installation.predictions", lambda c: c.execute(asked).all())
    known = {row[0]: int(row[1]) for row in answered}
    unknown |= {name for name, count in given.items() if known.get(name, 0) < count}
    if unknown:
        what = {"ans": "answer", "prd": "predictor"}.get(min(unknown)[:3], "release")
        raise Unavailable(
            f"The database is older than the folder '{home.path}': it does not know of {what} '{min(unknown)}' what "
            "was done with it, so an old copy of it was restored, and the ε charged since would be forgotten. Restore "
            "the newest copy of both. If there is none, keep the folders of such releases elsewhere, and never release "
            "their batches again."
        )
