"""The settings: names, types, bounds and defaults, and which role needs which.

Each is read from `A44_<NAME>` or from the settings file; a description says what it does and who
reads it. An empty text means "not set"; `require_for` tells a role what it lacks.
"""

import os
import re
import shutil
import socket
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from processors.ports.addresses import Network, networks_of
from schemas.errors import Refused

ROLES = ("gateway", "relay", "ingest", "scheduler", "executor")
_KAFKA_ROLES = frozenset({"relay", "ingest", "executor"})
_BOOTSTRAP = re.compile(r"[^\s:,]+:\d{1,5}(,[^\s:,]+:\d{1,5})*")
_TOPIC_PREFIX = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
_SHORTEST_KEY_BYTES = 32
_LEAST_STEP_MEMORY_MB = 64


def _owner() -> str:
    return f"{socket.gethostname()}-{os.getpid()}"


class Settings(BaseSettings):
    """Everything that a process of the service can be told. Secrets are never shown by `repr`."""

    model_config = SettingsConfigDict(
        env_prefix="A44_", env_ignore_empty=True, extra="forbid", frozen=True, hide_input_in_errors=True
    )

    postgres_dsn: str = Field(
        default="",
        repr=False,
        description="Postgres that holds the log (every role, a44 migrate, a44 auth token create)",
        examples=["an address such as postgresql://a44:...@db.example:5432/a44"],
    )
    kafka_bootstrap: str = Field(
        default="",
        description="Kafka brokers (relay, ingest, executor; the scheduler sends hints where it is set)",
        examples=["host:port, more of them separated by commas"],
    )
    topic_prefix: str = Field(
        default="a44",
        pattern=_TOPIC_PREFIX,
        description="first part of every topic name, the same for all processes of an installation (every role)",
        examples=["letters, digits, '.', '_' and '-', at most 100"],
    )
    partitions: int = Field(
        default=8,
        ge=1,
        le=10_000,
        description="partitions of the topics that are created (relay)",
        examples=["a whole number from 1 to 10000"],
    )
    gateway_host: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="address that the gateway listens on (gateway)",
        examples=["an address of this machine"],
    )
    gateway_port: int = Field(
        default=8044,
        ge=0,
        le=65_535,
        description="port that the gateway listens on; 0 takes a free one (gateway)",
        examples=["a whole number from 0 to 65535"],
    )
    trusted_proxies: str = Field(
        default="",
        description="proxies whose X-Forwarded-For says who calls (gateway)",
        examples=["addresses or networks such as 10.0.0.0/8, separated by commas"],
    )
    gateway_connections: int = Field(
        default=4_000,
        ge=1,
        le=1_000_000,
        description="connections that one gateway holds at once (gateway)",
        examples=["a whole number from 1 to 1000000"],
    )
    gateway_connections_per_address: int = Field(
        default=1_000,
        ge=1,
        le=1_000_000,
        description="connections that one address may hold at one gateway (gateway)",
        examples=["a whole number from 1 to 1000000"],
    )
    gateway_header_seconds: float = Field(
        default=10.0,
        gt=0,
        le=3600,
        description="how long the headers of a request may take (gateway)",
        examples=["seconds above 0, at most 3600"],
    )
    gateway_body_seconds: float = Field(
        default=10.0,
        gt=0,
        le=3600,
        description="how long the body of a request may take (gateway)",
        examples=["seconds above 0, at most 3600"],
    )
    gateway_idle_seconds: float = Field(
        default=60.0,
        gt=0,
        le=3600,
        description="how long a connection may be without a request (gateway)",
        examples=["seconds above 0, at most 3600"],
    )
    gateway_bodies_mb: int = Field(
        default=64,
        ge=16,
        le=1_048_576,
        description="bodies of requests that one gateway holds at once, in MB (gateway)",
        examples=["a whole number from 16 to 1048576"],
    )
    gateway_queued_requests: int = Field(
        default=20_000,
        ge=1,
        le=1_000_000,
        description="requests that may wait for their commit at one gateway (gateway)",
        examples=["a whole number from 1 to 1000000"],
    )
    master_key: SecretStr = Field(
        default=SecretStr(""),
        description="key that webhook secrets are derived from (gateway)",
        examples=["at least 64 hexadecimal digits (32 bytes), the same for every gateway"],
    )
    secrets_file: Path | None = Field(
        default=None,
        description="TOML or JSON file with the secrets of each project (executor, gateway)",
        examples=["the path of a file that exists, with one table for each project"],
    )
    lease_seconds: float = Field(
        default=30.0,
        ge=3,
        le=3600,
        description="how long an executor's runs stay its own without a sign of life (executor)",
        examples=["seconds from 3 to 3600"],
    )
    executor_slots: int = Field(
        default=500,
        ge=1,
        le=100_000,
        description="runs held at once by one executor (executor)",
        examples=["a whole number from 1 to 100000"],
    )
    allow_private_egress: bool = Field(
        default=False,
        description="whether connectors may reach loopback and private addresses (executor)",
        examples=["true or false"],
    )
    step_environment: str = Field(
        default="",
        pattern=r"^([A-Za-z_][A-Za-z0-9_]*(,[A-Za-z_][A-Za-z0-9_]*)*)?$",
        description="names of environment variables that step hosts may see, beside a fixed few (executor)",
        examples=["names separated by commas"],
    )
    step_memory_mb: int = Field(
        default=1024,
        ge=0,
        le=1_048_576,
        description="memory that one step host may hold, in MB; 0 is no limit (executor)",
        examples=["a whole number from 64 to 1048576, or 0"],
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info",
        description="least severe line that is logged (every role)",
        examples=["debug, info, warning or error"],
    )
    metrics_port: int | None = Field(
        default=None,
        ge=0,
        le=65_535,
        description="loopback port that Prometheus reads; 0 takes a free one, none is off (every role)",
        examples=["a whole number from 0 to 65535, or no value"],
    )
    owner: str = Field(
        default_factory=_owner,
        min_length=1,
        max_length=200,
        description="name of this process in leases and at the brokers; different in each process (every role)",
        examples=["1 to 200 characters"],
    )
    dedup_window_hours: float = Field(
        default=24.0,
        gt=0,
        le=72,
        description="how long an idempotency key is remembered (gateway, ingest)",
        examples=["hours above 0, at most 72"],
    )
    outbox_retention_days: int = Field(
        default=7,
        ge=1,
        le=365,
        description="how long days of the outbox that are wholly sent are kept (scheduler)",
        examples=["a whole number of days from 1 to 365"],
    )
    storage_url: str = Field(
        default="",
        pattern=r"^(file:///.+|s3://[^/\s]+(/\S*)?)?$",
        description="storage for bodies over 256 KB; without it they travel whole (all roles but the relay)",
        examples=["file:///a/folder that all processes share, or s3://bucket with or without a prefix"],
    )
    storage_endpoint: str = Field(
        default="",
        pattern=r"^(https?://\S+)?$",
        description="address of an S3-compatible storage that is not Amazon's (as storage_url)",
        examples=["an address such as https://storage.example:9000"],
    )
    storage_access_key: str = Field(
        default="",
        description="access key of the bucket; without it S3's usual places are asked (as storage_url)",
        examples=["the id of an access key"],
    )
    storage_secret_key: SecretStr = Field(
        default=SecretStr(""),
        description="secret of the access key (as storage_url)",
        examples=["the secret that belongs to storage_access_key"],
    )
    storage_orphan_days: int = Field(
        default=31,
        ge=21,
        le=3650,
        description="how long stored bodies that no run refers to are kept (scheduler)",
        examples=["a whole number of days from 21 to 3650"],
    )
    redrive_rate: float = Field(
        default=50.0,
        gt=0,
        le=100_000,
        description="dead letters a second that the redrives of one project may take together (gateway)",
        examples=["letters a second above 0, at most 100000"],
    )
    schema_registry_url: str = Field(
        default="",
        pattern=r"^(https?://\S+)?$",
        repr=False,
        description="schema registry of those who produce to the events topic (ingest)",
        examples=["an address such as https://user:password@registry.example:8081"],
    )
    python: str = Field(
        default=sys.executable,
        min_length=1,
        description="interpreter of the step hosts (executor)",
        examples=["the path or name of a Python that has the SDK installed"],
    )

    @field_validator("kafka_bootstrap")
    @classmethod
    def _check_bootstrap(cls, value: str) -> str:
        if value and not _BOOTSTRAP.fullmatch(value):
            raise ValueError("not a list of host:port")
        return value

    @field_validator("trusted_proxies")
    @classmethod
    def _check_proxies(cls, value: str) -> str:
        networks_of(_parts(value))
        return value

    @field_validator("master_key")
    @classmethod
    def _check_master_key(cls, value: SecretStr) -> SecretStr:
        text = value.get_secret_value()
        if text and len(bytes.fromhex(text)) < _SHORTEST_KEY_BYTES:
            raise ValueError("too short")
        return value

    @field_validator("step_memory_mb")
    @classmethod
    def _check_step_memory(cls, value: int) -> int:
        if 0 < value < _LEAST_STEP_MEMORY_MB:
            raise ValueError("a host could not even start")
        return value

    @field_validator("secrets_file")
    @classmethod
    def _check_secrets_file(cls, value: Path | None) -> Path | None:
        if value is not None and not value.is_file():
            raise ValueError("there is no such file")
        return value

    def proxies(self) -> tuple[Network, ...]:
        """The networks of the trusted proxies."""
        return networks_of(_parts(self.trusted_proxies))

    def master_key_bytes(self) -> bytes:
        """The key itself; empty where none is set."""
        return bytes.fromhex(self.master_key.get_secret_value())

    def require(self, name: str, reason: str) -> None:
        """Raise `E_CONFIG` where a setting that something needs is not set."""
        value = getattr(self, name)
        if value if not isinstance(value, SecretStr) else value.get_secret_value():
            return
        raise Refused(
            "E_CONFIG",
            f"{name} is not set, but {reason}; expected {expected(name)}. "
            f"Set A44_{name.upper()} or {name} in the settings file",
            details={"setting": name},
        )

    def require_for(self, roles: Iterable[str]) -> None:
        """Raise `E_CONFIG` for the first thing that one of these roles lacks."""
        for role in roles:
            self.require("postgres_dsn", f"the role {role} keeps everything in Postgres")
            if role in _KAFKA_ROLES:
                self.require("kafka_bootstrap", f"the role {role} talks to Kafka")
            if role == "gateway":
                self.require("master_key", "the gateway derives webhook secrets from it")
            if role == "executor" and shutil.which(self.python) is None:
                raise Refused(
                    "E_CONFIG",
                    f"python is {self.python!r}, which cannot be run; expected {expected('python')}",
                    details={"setting": "python"},
                )


def _parts(text: str) -> list[str]:
    return [part for part in text.split(",") if part.strip()]


def expected(name: str) -> str:
    """What a setting may hold, in words."""
    examples = Settings.model_fields[name].examples or ["another value"]
    return str(examples[0])


def parse_roles(text: str) -> tuple[str, ...]:
    """Roles from a comma-separated list, each once, in the given order."""
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    unknown = [name for name in names if name not in ROLES]
    if unknown or not names:
        seen = f"unknown role {unknown[0]!r}" if unknown else "no role was named"
        raise Refused("E_CONFIG", f"{seen}; the known roles are {', '.join(ROLES)}", details={"setting": "roles"})
    return names
