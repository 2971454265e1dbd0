"""Settings of a service, from the environment (`LABELS_PARTY_*`, `FEATURES_PARTY_*`); each party adds its own."""

from __future__ import annotations

import os
import re
from difflib import get_close_matches
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, get_args, get_origin

from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from label_dp.errors import InvalidSettings
from label_dp.logs import LogFormat
from label_dp.numbers import BadSpelling, real_of, whole_of
from label_dp.quota import memory_bytes
from label_dp.schemas.validation import broken_rule

if TYPE_CHECKING:
    from label_dp.http.bodies import Bounds
    from label_dp.http.code_flow import CodeFlow
    from label_dp.http.oidc import Issuer
    from label_dp.moments import Clock

USUAL_MEMORY_MB, LEAST_MEMORY_MB, LEAST_DECODING_MB = 1024, 64, 320
# variables that Kubernetes sets for every service of a name space, unless `enableServiceLinks` is off
LINK = re.compile(r"(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)")
LINKED = re.compile(r"(?:tcp|udp|sctp)://.*", re.DOTALL)


def settings_of(party: str) -> SettingsConfigDict:
    """Return the configuration of `party`'s settings (such as "labels-party"): variables with its prefix, immutable."""
    return SettingsConfigDict(env_prefix=f"{party.upper().replace('-', '_')}_", extra="forbid", frozen=True)


def state_folder(party: str) -> Path:
    """Return the usual home of `party`, in the user's state folder."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / party


def usual_memory_mb() -> int:
    """Return a gibibyte, or a quarter of this process's memory if that is less."""
    return max(min(USUAL_MEMORY_MB, memory_bytes() >> 22), LEAST_MEMORY_MB)


def usual_decoding_mb() -> int:
    """Return `usual_memory_mb`, at least the memory of one upload."""
    return max(usual_memory_mb(), LEAST_DECODING_MB)


class ServiceSettings(BaseSettings):
    """Every setting has a default that works on one machine with nothing installed."""

    party: ClassVar[str]

    # each party names its own usual home and port
    home: Path = Field(default=Path(), description="Folder of everything that a party keeps.")
    host: str = Field(default="127.0.0.1", description="Address that `serve` listens on.")
    port: int = Field(default=0, ge=0, le=65535, description="Port that `serve` listens on.")
    database_url: SecretStr | None = Field(default=None, description="PostgreSQL URL; default SQLite inside the home.")
    worker: bool = Field(
        default=True,
        description="Whether `serve` also works in the background; off for replicas that only answer requests.",
    )
    metrics_port: int = Field(
        default=0, ge=0, le=65535, description="A port of its own for `/metrics`, which `port` then lacks; 0: none."
    )
    probes_port: int = Field(
        default=0, ge=0, le=65535, description="A port of its own for `/healthz` and `/readyz`, beside `port`; 0: none."
    )
    proxies: str = Field(
        default="",
        description="Addresses or networks of the proxies in front, separated by commas: what their headers say of a "
        "caller's address and of TLS is believed. Empty: nobody's.",
    )
    memory_limit_mb: int = Field(
        default_factory=usual_memory_mb,
        ge=LEAST_MEMORY_MB,
        description="Memory for sorting and joining; the rest is spilled to the home's disk.",
    )
    decoding_memory_mb: int = Field(
        default_factory=usual_decoding_mb,
        ge=LEAST_DECODING_MB,
        description="Memory for what all calls together decode at once; further ones wait, then get 503.",
    )
    max_body_bytes: int = Field(
        default=1 << 30, ge=1 << 10, description="Largest request body; larger uploads get 413."
    )
    upload_idle_seconds: float = Field(
        default=30.0, gt=0, description="An upload that sends nothing for so long gets 408."
    )
    uploads_at_once: int = Field(
        default=32, ge=1, le=1000, description="Uploads taken in at the same time; further ones get 503."
    )
    calls_per_minute: int = Field(
        default=0, ge=0, le=1_000_000, description="Calls that an API key may make in a minute; further ones get 429."
    )
    oidc_issuer: str = Field(
        default="", description="Address of the OIDC issuer whose tokens are accepted beside API keys. Empty: none."
    )
    oidc_audience: str = Field(
        default="", description="With an issuer: the audience (`aud`) of bearer tokens for this service."
    )
    oidc_role_claim: str = Field(
        default="label_dp_role", description="With an issuer: the claim that states the role, such as `groups`."
    )
    oidc_roles: str = Field(
        default="",
        description="With an issuer: JSON object from values of the role claim to roles. Empty: the values are roles.",
    )
    oidc_client_id: str = Field(
        default="", description="With an issuer: our client id there, for people who sign in to the pages. Empty: keys."
    )
    oidc_client_secret: SecretStr | None = Field(
        default=None, description="With a client id: the client's secret, if the issuer gave one."
    )
    oidc_redirect: str = Field(
        default="", description="With a client id: our address `https://…/sign-in/return`, as the issuer lists it."
    )
    shutdown_seconds: int = Field(
        default=20, ge=1, description="How long requests may go on after SIGTERM before they are cut off."
    )
    revision: str = Field(
        default="", max_length=100, description="Which build this is, such as its commit; shown by `/metrics`."
    )
    log_format: LogFormat = Field(default="plain", description="Lines of the log: plain or json.")

    @field_validator("*", mode="before")
    @classmethod
    def _no_file(cls, value: Any, info: ValidationInfo) -> Any:
        """Read a blank path as no file: otherwise it would be the current folder."""
        optional = {Path, type(None)} <= set(get_args(cls.model_fields[str(info.field_name)].annotation))
        return None if optional and isinstance(value, str) and not value.strip() else value

    @field_validator("proxies")
    @classmethod
    def _addresses(cls, value: str) -> str:
        try:
            for one in listed(value):
                ip_network(one)
        except ValueError:  # its text would be quoted
            raise PydanticCustomError(
                "addresses", "must be addresses or networks such as 127.0.0.1 or 10.0.0.0/24, separated by commas"
            ) from None
        return value

    @property
    def proxy_list(self) -> tuple[str, ...]:
        return listed(self.proxies)

    @field_validator("*", mode="before")
    @classmethod
    def _plain_numbers(cls, value: Any, info: ValidationInfo) -> Any:
        """Read numbers by the grammar of `label_dp.numbers`; pydantic's own accepts blanks and underscores."""
        annotation = cls.model_fields[str(info.field_name)].annotation
        kinds = {annotation, *get_args(annotation)} & {int, float}
        if isinstance(value, str) and kinds:
            try:
                return whole_of(value) if int in kinds else real_of(value)
            except BadSpelling as error:
                raise PydanticCustomError("number", "must be {said}", {"said": str(error)}) from None
        return value

    @field_validator("*", mode="before")
    @classmethod
    def _without_line_end(cls, value: Any, info: ValidationInfo) -> Any:
        """Strip the line end of a secret."""
        return value.strip() if isinstance(value, str) and cls._is_secret(str(info.field_name)) else value

    @classmethod
    def load(cls) -> Self:
        """Load settings from the environment; secrets also from the files that settings with _FILE name. Raises
        InvalidSettings naming the variable, never its value (URLs hold passwords)."""
        prefix = str(cls.model_config["env_prefix"])
        secrets = {prefix + name.upper() + "_FILE": name for name in cls.model_fields if cls._is_secret(name)}
        names = {prefix + name.upper() for name in cls.model_fields} | set(secrets)
        named = {name.upper(): value for name, value in os.environ.items() if name.upper().startswith(prefix)}
        links = _links(prefix, named)
        unknown = sorted(set(named) - names - links)
        if unknown:
            alike = get_close_matches(unknown[0], names, 1)
            hint = f"Did you mean {alike[0]}?" if alike else f"The known ones are {', '.join(sorted(names))}."
            spelt = next(name for name in os.environ if name.upper() == unknown[0])
            raise InvalidSettings(f"Unknown setting {spelt}. {hint}")
        # values given here override the environment
        values: dict[str, Any] = {
            name: cls.model_fields[name].get_default() for name in cls.model_fields if prefix + name.upper() in links
        }
        values |= {name: _in_file(file, named) for file, name in secrets.items() if file in named}
        try:
            return cls(**values)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            name = prefix + str(first["loc"][0]).upper()
            raise InvalidSettings(f"The setting {name} {broken_rule(first)}.") from None
        except SettingsError:  # it quotes the value
            lists = [prefix + n.upper() for n, f in cls.model_fields.items() if get_origin(f.annotation) is tuple]
            raise InvalidSettings(f"The setting {' or '.join(lists)} must be a JSON list.") from None

    @classmethod
    def _is_secret(cls, name: str) -> bool:
        return SecretStr in get_args(cls.model_fields[name].annotation)

    @property
    def bounds(self) -> Bounds:
        from label_dp.http.bodies import Bounds  # with FastAPI, which a command that serves nothing can do without

        return Bounds(self.max_body_bytes, self.upload_idle_seconds, self.uploads_at_once)

    def issuer(self, roles: tuple[str, ...], clock: Clock) -> tuple[Issuer | None, CodeFlow | None]:
        """Return the issuer of tokens, and the sign-in of people there, if they are set. Raises InvalidSettings."""
        setting = f"{self.model_config['env_prefix']}OIDC"
        if not self.oidc_issuer:
            if self.oidc_client_id:
                raise InvalidSettings(f"{setting}_CLIENT_ID needs {setting}_ISSUER, whose client it is.")
            return None, None
        from label_dp.http.code_flow import CodeFlow  # with joserfc
        from label_dp.http.oidc import ClaimRules, Issuer

        rules = ClaimRules.of(self.oidc_audience, self.oidc_role_claim, self.oidc_roles, roles, setting)
        issuer = Issuer(self.oidc_issuer, rules, clock)
        secret = None if self.oidc_client_secret is None else self.oidc_client_secret.get_secret_value()
        if not self.oidc_client_id:
            return issuer, None
        return issuer, CodeFlow(issuer, self.oidc_client_id, self.oidc_redirect, secret)

    @property
    def url(self) -> str:
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        return f"sqlite:///{self.home.absolute() / f'{self.party}.sqlite'}"


def listed(value: str) -> tuple[str, ...]:
    """Split a comma-separated setting."""
    return tuple(part.strip() for part in value.split(",") if part.strip())


def _links(prefix: str, named: dict[str, str]) -> set[str]:
    """Return the variables of our prefix that Kubernetes set for a service of our name; they are not our settings."""
    if not any(name.endswith("_SERVICE_HOST") for name in named):
        return set()
    # PREFIX_PORT is ours too, unless its value is an address such as tcp://10.0.0.1:8001
    addresses = {name for name, value in named.items() if name.endswith("_PORT") and LINKED.fullmatch(value)}
    return addresses | {name for name in named if LINK.fullmatch(name.removeprefix(prefix))}


def _in_file(setting: str, named: dict[str, str]) -> str:
    """Read the secret in the file that `setting` names, without the line's end. Raises InvalidSettings."""
    plain = setting.removesuffix("_FILE")
    if plain in named:
        raise InvalidSettings(f"Both {plain} and {setting} are set; set one of them.")
    try:
        secret = Path(named[setting]).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise InvalidSettings(f"The file that the setting {setting} names cannot be read ({reason}).") from None
    if not secret:
        raise InvalidSettings(f"The file that the setting {setting} names is empty; write the secret into it.")
    return secret
