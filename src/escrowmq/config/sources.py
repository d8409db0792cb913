"""Reads the configuration from its sources: a TOML file, environment variables and the command line.

The command line has precedence over the environment, and the environment over the file. Each fault names its source,
the key, and the expected value.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, cast

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic_core import ErrorDetails

from escrowmq.config.config import Config
from escrowmq.config.errors import ConfigError
from escrowmq.config.replication import ReplicationSection

PREFIX: Final = "ESCROWMQ_"
FILE_SUFFIX: Final = "_FILE"
"""The variable of a secret with this suffix names a file that contains the secret."""
_EXPECTED: Final = {"path_type": "a path", "bool_type": "true or false", "tuple_type": 'a list like ["A", "B"]'}
"""Texts for kinds of faults that pydantic describes in terms of Python."""


def load(
    path: Path | None = None,
    overrides: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Config:
    """Read the configuration.

    Args:
        path: A TOML file.
        overrides: The values of the command line by key (`{"listen.address": …}`).
        environment: Environment variables. Those that begin with `ESCROWMQ_` and the name of a table set keys of it.

    Raises:
        ConfigError: A file cannot be read or is not TOML, a key is unknown, a value is invalid, or TLS is incomplete.
    """
    values: dict[str, Any] = _read(path) if path else {}
    origins: dict[str, str] = {}
    for key, (variable, value) in _from_environment(environment or {}).items():
        _put(values, key, value)
        origins[key] = f"environment variable {variable}"
    for key, override in (overrides or {}).items():
        _put(values, key, override)
        origins[key] = f"command line: {key}"
    try:
        config = Config.model_validate(values, context={"folder": path.parent} if path else None)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False)
        raise ConfigError(*(_explain(fault, str(path), origins) for fault in faults)) from None
    if missing := _missing_for_tls(config) or _wrong_times(config.replication):
        raise ConfigError(f"{path or 'command line'}: {missing}")
    return config


def data_dir_of(path: Path) -> Path | None:
    """Return the data directory that a TOML file names; None if it names none. Other keys are not checked.

    Raises:
        ConfigError: The file cannot be read or is not TOML, or its `data_dir` is not a path.
    """
    values = _read(path)
    if "data_dir" not in values:
        return None
    try:
        return Config.model_validate({"data_dir": values["data_dir"]}, context={"folder": path.parent}).data_dir
    except ValidationError as error:
        raise ConfigError(f"{path}: data_dir: expected a path") from error


def variables() -> dict[str, str]:
    """Return the key of each environment variable, such as `limits.frame_max` of `ESCROWMQ_LIMITS_FRAME_MAX`."""
    return {PREFIX + key.replace(".", "_").upper(): key for key, _, _ in _keys()}


def _keys() -> Iterator[tuple[str, type[BaseModel], str]]:
    """Yield each key with its table and its name in that table."""
    for name, field in Config.model_fields.items():
        table = field.annotation
        if isinstance(table, type) and issubclass(table, BaseModel):
            yield from ((f"{name}.{each}", table, each) for each in table.model_fields)
        else:
            yield name, Config, name


def _from_environment(environment: Mapping[str, str]) -> dict[str, tuple[str, object]]:
    """Return variable and value for each key that the environment sets. Raises ConfigError."""
    known = {PREFIX + key.replace(".", "_").upper(): (key, table, name) for key, table, name in _keys()}
    tables = tuple(f"{PREFIX}{name.upper()}_" for name in Config.model_fields)
    found: dict[str, tuple[str, object]] = {}
    for variable, text in sorted(environment.items()):
        secret = variable.removesuffix(FILE_SUFFIX)
        if variable in known:
            key, table, name = known[variable]
            found[key] = variable, _typed(table, name, text)
        elif secret != variable and secret in known and _is_secret(*known[secret][1:]):
            found[known[secret][0]] = variable, _first_line(variable, Path(text))
        elif variable.startswith(tables):
            close = get_close_matches(variable, known, n=1)
            hint = f"did you mean {close[0]}?" if close else "the configuration has no such key"
            raise ConfigError(f"environment variable {variable}: unknown; {hint}")
    return found


def _typed(table: type[BaseModel], name: str, text: str) -> object:
    """Return the value of a variable: its text if the key takes that, or else what it means as a value in TOML."""
    for value in (text, _as_toml(text)):
        try:
            valid = getattr(table.model_validate({name: value}), name)
        except ValidationError:
            continue
        return valid.absolute() if isinstance(valid, Path) else value
    return _as_toml(text)


def _as_toml(text: str) -> object:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _is_secret(table: type[BaseModel], name: str) -> bool:
    return table.model_fields[name].annotation is SecretStr


def _first_line(variable: str, path: Path) -> str:
    """Return the first line of the file with a secret."""
    try:
        return path.read_text(encoding="utf-8").split("\n", 1)[0].removesuffix("\r")
    except OSError as error:
        raise ConfigError(f"environment variable {variable}: {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"environment variable {variable}: {path}: not UTF-8 at byte {error.start}") from error


def _put(values: dict[str, Any], key: str, value: object) -> None:
    section, _, name = key.rpartition(".")
    table = values.setdefault(section, {}) if section else values
    if isinstance(table, dict):  # otherwise the validation refuses it
        table[name] = value


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"configuration file {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 at byte {error.start}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from error


def _explain(fault: ErrorDetails, file: str, origins: Mapping[str, str]) -> str:
    location = fault["loc"]
    key = ".".join(str(part) for part in location)
    source = next((origins[each] for each in _prefixes(location) if each in origins), f"{file}: {key}")
    if fault["type"] == "extra_forbidden":
        return f"{source}: unknown key; {_suggest(location)}"
    if fault["type"] == "model_type":
        return f"{source}: expected a table, [{key}]"
    expected = fault["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    if fault["type"] in _EXPECTED:
        expected = _EXPECTED[fault["type"]]
    elif fault["type"].startswith(("greater_than", "less_than")):
        expected = f"a number {expected}"
    got = "" if key == "security.default_password" else f", not {fault['input']!r}"
    return f"{source}: expected {expected}{got}"


def _prefixes(location: tuple[int | str, ...]) -> Iterator[str]:
    """Yield the key at a fault's location, and the keys that contain it: an item of a list has no origin of its own."""
    for length in range(len(location), 0, -1):
        yield ".".join(str(part) for part in location[:length])


def _suggest(location: tuple[int | str, ...]) -> str:
    """Return the key that was probably meant, or else all keys of that table."""
    model: type[BaseModel] = Config
    for part in location[:-1]:
        model = cast("type[BaseModel]", model.model_fields[str(part)].annotation)
    close = get_close_matches(str(location[-1]), model.model_fields, n=1)
    return f"did you mean {close[0]}?" if close else f"known keys: {', '.join(model.model_fields)}"


def _wrong_times(section: ReplicationSection) -> str:
    """Return what is wrong with the times of replication; empty if nothing is."""
    if 2 * section.heartbeat_seconds >= section.lease_seconds:
        return "replication.heartbeat_seconds: must be less than half of replication.lease_seconds"
    if section.silence_seconds >= section.lease_seconds:
        return "replication.silence_seconds: must be less than replication.lease_seconds"
    return ""


def _missing_for_tls(config: Config) -> str | None:
    tls = config.tls
    if config.listen.tls_address and not (tls.certificate and tls.key):
        return "listen.tls_address: requires tls.certificate and tls.key"
    if config.http.tls and not (tls.certificate and tls.key):
        return "http.tls: requires tls.certificate and tls.key"
    if tls.verify_client != "none" and not tls.ca:
        return f'tls.verify_client: "{tls.verify_client}" requires tls.ca'
    return None
