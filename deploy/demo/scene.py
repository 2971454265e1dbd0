"""What the acts of the story share: the clicks, the two callers, the folder, the names."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.parquet as pq

from deploy.demo.folder import DemoFolder
from deploy.demo.generator import ClickLog, generate
from deploy.demo.parties import Access, Advertiser, Publisher
from deploy.demo.telling import Teller
from shared.errors import InvalidInput
from shared.message.bundle import Bundle, VerifiedMessage, verify
from shared.message.signing import VerifyingKey
from shared.privacy import Epsilon

AUDIENCE = "features-party"
ID = "click_id"
LABEL = "revenue_eur"
LIFETIMES = 2  # the lifetime budget, in releases of the size that is asked for
HELD_OUT = 4  # one held-out click per this many clicks
FEWEST, MOST = 500, 5_000_000


@dataclass(frozen=True)
class Options:
    """What the visitor may choose. Raises InvalidInput, InvalidEpsilon."""

    clicks: int
    epsilon: Epsilon
    seed: int

    @classmethod
    def checked(cls, clicks: int, epsilon: str, seed: int) -> Options:
        """Options that the story can be told with."""
        if not FEWEST <= clicks <= MOST:
            raise InvalidInput(f"--clicks must lie between {FEWEST:,} and {MOST:,}.")
        if not 0 <= seed < 1 << 32:
            raise InvalidInput("--seed must lie between 0 and 4294967295.")
        return cls(clicks, Epsilon.parse(epsilon, positive=True, name="--epsilon"), seed)

    @property
    def lifetime(self) -> Epsilon:
        """The lifetime ε per example of every population of the demo."""
        return Epsilon(self.epsilon.nano * LIFETIMES)

    @property
    def too_much(self) -> Epsilon:
        """More than is left after the first release."""
        return Epsilon(self.epsilon.nano * 3 // 2)


@dataclass(frozen=True)
class Scene:
    """`clicks` carry the labels of the story, `held_out` are later ones on which models are tested.

    `tag` keeps names apart where the services outlive the demo; empty for services of its own.
    """

    teller: Teller
    folder: DemoFolder
    options: Options
    access: Access
    advertiser: Advertiser
    publisher: Publisher
    clicks: ClickLog
    held_out: ClickLog
    tag: str

    @property
    def key(self) -> VerifyingKey:
        """The labels party's public key, as it was handed over."""
        return VerifyingKey.load(self.access.labels_key)

    @property
    def ids(self) -> pa.Array:
        return self.clicks.features[ID]

    def name(self, base: str) -> str:
        """A population or label name of this run."""
        return f"{base}-{self.tag}" if self.tag else base

    def fetch(self, release: str, out: Path) -> VerifiedMessage:
        """A published message with its manifest in a file of the folder, verified."""
        from features_party.labels_service import LabelsService
        from features_party.pull import pull

        key = self.key
        # a transport of our own: proxies of the environment are for the outside world
        with LabelsService(
            self.access.labels_url, self.access.reader or self.access.owner, transport=httpx.HTTPTransport()
        ) as service:
            pull(service, release, lambda _: key, AUDIENCE, out, lambda _what, _share: None)
        return verify(out, key, AUDIENCE)


def simulate(options: Options, folder: DemoFolder, tag: str) -> tuple[ClickLog, ClickLog]:
    """Clicks of the story and later, held-out ones; both written to the folder, features and revenue apart."""
    later = options.clicks // HELD_OUT
    log = generate(options.clicks + later, options.seed, prefix=f"clk-{tag}" if tag else "clk")
    clicks, held_out = log.take(0, options.clicks), log.take(options.clicks, len(log))
    pq.write_table(clicks.features, folder.clicks / "features.parquet")
    pq.write_table(pa.table({ID: clicks.features[ID], LABEL: clicks.revenue}), folder.clicks / "revenue.parquet")
    # features and truth in one file exist only because this is a simulation
    pq.write_table(
        held_out.features.append_column(LABEL, pa.array(held_out.labels)), folder.clicks / "held-out.parquet"
    )
    return clicks, held_out


def new_tag() -> str:
    """Names of this run at services that outlive it."""
    return secrets.token_hex(3)


def tampered(message: Path) -> dict[str, bytes]:
    """The parts of a message, one bit of its rows flipped."""
    bundle = Bundle(message)
    rows = bytearray(message.read_bytes())
    rows[len(rows) // 2] ^= 1
    return {"manifest.dsse.json": bundle.envelope(), "message.parquet": bytes(rows)}


def plain(number: Epsilon | Decimal | str) -> str:
    """ε as people write it."""
    text = str(number)
    return text.rstrip("0").rstrip(".") if "." in text else text
