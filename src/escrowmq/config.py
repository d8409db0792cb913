"""The configuration: what can be set, its defaults and bounds, and how a TOML file becomes one frozen object.

The fields' descriptions are the documentation: docs/configuration.md is generated from them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError
from pydantic import ValidationInfo as Info
from pydantic_core import ErrorDetails

from escrowmq.units import (
    ADDRESS_FORM,
    DURATION_FORM,
    SIZE_FORM,
    Address,
    parse_address,
    parse_duration,
    parse_size,
)

CONTENT_BYTES = 896 << 20
"""Bodies and headers in one record of the journal: fewer than a record takes, for all that goes with them."""
LEAST_WATERMARK = 1 << 20
"""Bytes; what is less than this was meant as something else, per cent for one."""
WATERMARK_FORM = 'a share of this machine\'s memory like 0.4, or a size like "1GiB", of 1 MiB at least'


class ConfigError(Exception):
    """What is wrong with a configuration, one line for each fault: file, key, what was expected."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


@dataclass(frozen=True)
class Accepts:
    """What a value may look like, for the documentation."""

    form: str


def _watermark(value: object) -> float | int:
    if isinstance(value, float) and 0 < value <= 1:
        return value
    try:
        size = parse_size(value)
    except ValueError:
        size = 0
    if size < LEAST_WATERMARK:
        raise ValueError(WATERMARK_FORM)
    return size


def _not_empty(mechanisms: tuple[str, ...]) -> tuple[str, ...]:
    if not mechanisms:
        raise ValueError("at least one mechanism")
    return mechanisms


def _beside_the_file(path: Path, info: Info) -> Path:
    if path == Path():  # what an empty text comes to: the folder of the file itself, which nobody means
        raise ValueError("a path")
    folder = (info.context or {}).get("folder")
    return Path(folder, path) if folder else path


Size = Annotated[int, BeforeValidator(parse_size), Accepts(SIZE_FORM)]
Duration = Annotated[float, BeforeValidator(parse_duration), Accepts(DURATION_FORM)]
Listen = Annotated[Address, BeforeValidator(parse_address), Accepts(ADDRESS_FORM)]
Watermark = Annotated[
    float | int,
    BeforeValidator(_watermark),
    Accepts(WATERMARK_FORM),
]
File = Annotated[
    Path,
    Field(strict=False),
    AfterValidator(_beside_the_file),
    Accepts("a path; a relative one starts at the folder of the configuration file"),
]
Secret = Annotated[SecretStr, Field(strict=False), Accepts("a text")]
Mechanism = Literal["PLAIN", "AMQPLAIN", "EXTERNAL"]


class Section(BaseModel):
    """A table of the file: unknown keys are refused, values are of the type that is written, nothing changes later."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ListenSection(Section):
    """Where clients connect."""

    address: Listen = Field(default=Address("127.0.0.1", 5672), description="Where AMQP clients connect without TLS.")
    tls_address: Listen | None = Field(
        default=None, description="Where AMQP clients connect with TLS; needs `tls.certificate` and `tls.key`."
    )
    backlog: int = Field(default=1024, ge=1, le=65535, description="Connections that may wait to be accepted.")


class TlsSection(Section):
    """Certificates, when `listen.tls_address` is set."""

    certificate: File | None = Field(default=None, description="The server's certificate chain, PEM.")
    key: File | None = Field(default=None, description="The private key of the certificate, PEM, without a passphrase.")
    ca: File | None = Field(default=None, description="Authorities that client certificates are checked against, PEM.")
    verify_client: Literal["none", "optional", "required"] = Field(
        default="none",
        description="Whether clients show a certificate; `EXTERNAL` needs one, and takes the user's name from it.",
    )
    min_version: Literal["1.2", "1.3"] = Field(default="1.2", description="The oldest version of TLS that is spoken.")


class LimitsSection(Section):
    """Bounds for what one client can ask for."""

    connections: int = Field(
        default=10_000, ge=1, description="Connections at one time; further ones are closed at once."
    )
    channels_per_connection: int = Field(default=2047, ge=1, le=65535, description="Channels on one connection.")
    frame_max: Size = Field(default=131_072, ge=4096, le=1 << 30, description="Bytes of one frame.")
    message_size: Size = Field(default=128 << 20, ge=1, le=CONTENT_BYTES, description="Bytes of one message's body.")
    header_size: Size = Field(
        default=65_536, ge=1024, le=16 << 20, description="Bytes of one message's properties and headers."
    )
    unauthenticated_seconds: Duration = Field(
        default=10.0, gt=0, description="How long a connection may take to authenticate and open."
    )
    heartbeat_seconds: Duration = Field(
        default=60.0, description="The heartbeat that is proposed to clients; 0 proposes none."
    )
    transaction_operations: int = Field(
        default=1_000_000, ge=0, description="Publishes and settlements in one transaction; 0 is without bound (TX-13)."
    )
    transaction_bytes: Size = Field(
        default=512 << 20,
        le=CONTENT_BYTES,
        description="Bytes published in one transaction, bodies and headers; 0 is as much as a record holds, 1 GiB in "
        "all (TX-13).",
    )
    transaction_age_seconds: Duration = Field(
        default=3600.0, description="How long a transaction with work in it may stay open; 0 is without bound (TX-13)."
    )


class MemorySection(Section):
    """When publishers are held back, and how much of a queue stays in memory."""

    high_watermark: Watermark = Field(
        default=0.4, description="Memory of the process above which publishers are blocked until it falls again."
    )
    queue_resident_bytes: Size = Field(
        default=16 << 20,
        ge=65_536,
        description="Message bytes that one queue keeps in memory; the rest is read back from disk.",
    )

    def high_watermark_bytes(self, total: int) -> int:
        """The high watermark in bytes on a machine with `total` bytes of memory."""
        mark = self.high_watermark
        return int(mark * total) if isinstance(mark, float) else mark


class DiskSection(Section):
    """When publishers are held back for want of disk."""

    free_limit: Size = Field(
        default=256 << 20, description="Free bytes on the data directory's disk below which publishers are blocked."
    )


class JournalSection(Section):
    """The log in the data directory."""

    segment_bytes: Size = Field(
        default=64 << 20, ge=1 << 20, le=1 << 34, description="Size at which a new segment is begun."
    )
    snapshot_bytes: Size = Field(
        default=256 << 20, ge=1 << 20, description="Log written since the last snapshot at which a new one is taken."
    )
    compaction_ratio: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="Segments of which a smaller share is alive are compacted; 0 compacts nothing.",
    )
    retain_bytes: Size = Field(
        default=0, description="History that is kept for audits although the broker needs it no more, newest first."
    )
    detail: Literal["none", "deliveries"] = Field(
        default="none", description="Whether the log tells what was delivered to whom and when, for audits."
    )


class SecuritySection(Section):
    """How clients authenticate, and who is there at the first start."""

    mechanisms: Annotated[tuple[Mechanism, ...], Field(strict=False), AfterValidator(_not_empty)] = Field(
        default=("PLAIN", "AMQPLAIN", "EXTERNAL"), description="SASL mechanisms that are offered."
    )
    guest_loopback_only: bool = Field(
        default=True, description="Whether the user `guest` may connect from this machine only."
    )
    default_user: str = Field(default="guest", min_length=1, description="The user that is made at the first start.")
    default_password: Secret = Field(default=SecretStr("guest"), description="The password of that user.")
    default_vhost: str = Field(
        default="/", min_length=1, description="The virtual host that is made at the first start."
    )


class LogSection(Section):
    """What the broker says on stderr."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The least that is worth a line."
    )
    format: Literal["text", "json"] = Field(
        default="text", description="Lines for people, or one JSON object on each line."
    )


class Config(Section):
    """Everything that can be set."""

    data_dir: File = Field(
        default=Path("escrowmq-data"), description="The folder of the journal; made when it is absent."
    )
    listen: ListenSection = ListenSection()
    tls: TlsSection = TlsSection()
    limits: LimitsSection = LimitsSection()
    memory: MemorySection = MemorySection()
    disk: DiskSection = DiskSection()
    journal: JournalSection = JournalSection()
    security: SecuritySection = SecuritySection()
    log: LogSection = LogSection()


def load(path: Path | None = None, overrides: Mapping[str, object] | None = None) -> Config:
    """The configuration of a TOML file, or the defaults, under what the command line sets (`{"listen.address": …}`).

    Raises ConfigError for a file that cannot be read or is no TOML, for unknown keys, bad values, and TLS in part.
    """
    values: dict[str, Any] = _read(path) if path else {}
    overrides = overrides or {}
    for key, value in overrides.items():
        section, _, name = key.rpartition(".")
        table = values.setdefault(section, {}) if section else values
        if isinstance(table, dict):  # else it is about to be refused
            table[name] = value
    try:
        config = Config.model_validate(values, context={"folder": path.parent} if path else None)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False)
        raise ConfigError(*(_explain(fault, str(path), overrides) for fault in faults)) from None
    if missing := _missing_for_tls(config):
        raise ConfigError(f"{path or 'command line'}: {missing}")
    return config


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"configuration file {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 at byte {error.start}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from error


def _explain(fault: ErrorDetails, file: str, overrides: Mapping[str, object]) -> str:
    location = fault["loc"]
    key = ".".join(str(part) for part in location)
    source = "command line" if key in overrides else file
    if fault["type"] == "extra_forbidden":
        return f"{source}: {key}: unknown key; {_suggest(location)}"
    if fault["type"] == "model_type":
        return f"{source}: {key}: expected a table, [{key}]"
    expected = fault["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    if fault["type"] == "path_type":
        expected = "a path"
    elif fault["type"].startswith(("greater_than", "less_than")):
        expected = f"a number {expected}"
    got = "" if key == "security.default_password" else f", not {fault['input']!r}"
    return f"{source}: {key}: expected {expected}{got}"


def _suggest(location: tuple[int | str, ...]) -> str:
    """The key that was probably meant, else all keys of that table."""
    model: type[BaseModel] = Config
    for part in location[:-1]:
        model = cast("type[BaseModel]", model.model_fields[str(part)].annotation)
    close = get_close_matches(str(location[-1]), model.model_fields, n=1)
    return f"did you mean {close[0]}?" if close else f"known here: {', '.join(model.model_fields)}"


def _missing_for_tls(config: Config) -> str | None:
    tls = config.tls
    if config.listen.tls_address and not (tls.certificate and tls.key):
        return "listen.tls_address: needs tls.certificate and tls.key"
    if tls.verify_client != "none" and not tls.ca:
        return f'tls.verify_client: "{tls.verify_client}" needs tls.ca'
    return None
