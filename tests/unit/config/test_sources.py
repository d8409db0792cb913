"""Sources of the configuration: files, environment variables, the command line, and the text for each fault."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from escrowmq.config.config import Config
from escrowmq.config.errors import ConfigError
from escrowmq.config.sources import load, variables
from escrowmq.config.values import TopicCheckOptions
from escrowmq.units import Address
from tests.unit.keys import KEYS


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    return tmp_path / "broker.toml"


def faults(path: Path | None, text: str = "", **overrides: object) -> list[str]:
    """Return the lines of `load`'s error without the file's name. `__` in a keyword stands for a dot."""
    if path:
        path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(path, {key.replace("__", "."): value for key, value in overrides.items()})
    assert str(caught.value) == "\n".join(caught.value.lines)
    return [line.removeprefix(f"{path}: ") for line in caught.value.lines]


def test_defaults() -> None:
    config = load()
    assert config == Config()
    assert config.listen.address == Address("127.0.0.1", 5672)
    assert config.limits.frame_max == 131072
    assert config.limits.channels_per_connection == 2047
    assert config.limits.message_size == 128 * 1024 * 1024
    assert config.security.guest_loopback_only


def test_a_file_sets_only_the_keys_that_it_names(toml: Path) -> None:
    toml.write_text('limits.frame_max = "64KiB"\nlimits.heartbeat_seconds = "2m"\n[log]\nlevel = "debug"\n')
    config = load(toml)
    assert config.limits.frame_max == 65536
    assert config.limits.heartbeat_seconds == pytest.approx(120)
    assert config.log.level == "debug"
    assert config.limits.connections == Config().limits.connections
    assert config.listen == Config().listen


def test_the_command_line_wins_over_the_file(toml: Path) -> None:
    toml.write_text('[listen]\naddress = "127.0.0.1:1"\nbacklog = 7\n')
    config = load(toml, {"listen.address": "127.0.0.1:2", "log.level": "error"})
    assert config.listen.address == Address("127.0.0.1", 2)
    assert config.listen.backlog == 7
    assert config.log.level == "error"


def test_paths_in_a_file_start_beside_it_and_others_where_they_are(toml: Path) -> None:
    toml.write_text('data_dir = "data"\n[tls]\nca = "/etc/ca.pem"\n')
    config = load(toml)
    assert config.data_dir == toml.parent / "data"
    assert config.tls.ca == Path("/etc/ca.pem")
    assert load(toml, {"data_dir": Path("/var/lib/q")}).data_dir == Path("/var/lib/q")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("limits.frame_mxa = 1", "limits.frame_mxa: unknown key; did you mean frame_max?"),
        ("lisen.address = 'a:1'", "lisen: unknown key; did you mean listen?"),
        ("disk.zzz = 1", "disk.zzz: unknown key; known keys: free_limit"),
        ("limits = 3", "limits: expected a table, [limits]"),
        ("limits.frame_max = 12", "limits.frame_max: expected a number greater than or equal to 4096, not 12"),
        (
            "limits.message_size = '1GiB'",
            "limits.message_size: expected a number less than or equal to 939524096, not 1073741824",
        ),
        ("limits.connections = '9'", "limits.connections: expected a valid integer, not '9'"),
        ("limits.connections = true", "limits.connections: expected a valid integer, not True"),
        ("log.level = 'loud'", "log.level: expected 'debug', 'info', 'warning' or 'error', not 'loud'"),
        ("security.guest_loopback_only = 1", "security.guest_loopback_only: expected true or false, not 1"),
        (
            "security.mechanisms = ['X']",
            (
                "security.mechanisms.0: expected 'PLAIN', 'AMQPLAIN', 'EXTERNAL', 'ANONYMOUS', 'SCRAM-SHA-256' or "
                "'SCRAM-SHA-512', not 'X'"
            ),
        ),
        ("security.mechanisms = []", "security.mechanisms: expected at least one mechanism, not []"),
        (
            "compatibility.rabbitmq_version = '4.2'",
            "compatibility.rabbitmq_version: expected three numbers like \"4.2.0\", or an empty text, not '4.2'",
        ),
        ("tls.key = 3", "tls.key: expected a path, not 3"),
        (
            "limits.heartbeat_seconds = 'soon'",
            (
                "limits.heartbeat_seconds: expected a duration: a number of seconds, "
                'or a text like "250ms", "30s", "5m" or "1h", not \'soon\''
            ),
        ),
        (
            "limits.connections_per_user = 1.5",
            (
                "limits.connections_per_user: expected a share of `limits.connections` like 0.8, or a whole number; "
                "0 for no limit, not 1.5"
            ),
        ),
        (
            "memory.high_watermark = 2.0",
            (
                "memory.high_watermark: expected a share of this machine's memory like 0.4, "
                'or a size of at least 1 MiB like "1GiB", not 2.0'
            ),
        ),
        (
            "memory.high_watermark = 40",  # meant as a percentage
            (
                "memory.high_watermark: expected a share of this machine's memory like 0.4, "
                'or a size of at least 1 MiB like "1GiB", not 40'
            ),
        ),
        ("data_dir = ''", "data_dir: expected a path, not ''"),
        (
            "listen.address = ':1'",
            'listen.address: expected an address "HOST:PORT" or "[IPV6]:PORT" (port 0 picks a free one), not \':1\'',
        ),
        ("listen.tls_address = 'a:1'", "listen.tls_address: requires tls.certificate and tls.key"),
        ("http.tls = true", "http.tls: requires tls.certificate and tls.key"),
        ("tls.verify_client = 'required'", 'tls.verify_client: "required" requires tls.ca'),
    ],
)
def test_an_error_names_the_key_and_the_expected_value(toml: Path, text: str, fault: str) -> None:
    assert faults(toml, text) == [fault]


def test_every_fault_is_named_at_once(toml: Path) -> None:
    assert len(faults(toml, "a = 1\nlimits.connections = 0\nlog.format = 'xml'\n")) == 3


def test_an_error_of_the_command_line_names_the_option(toml: Path) -> None:
    lines = faults(toml, "disk.free_limit = -1", listen__backlog=0)
    assert lines[0] == "command line: listen.backlog: expected a number greater than or equal to 1, not 0"
    assert lines[1].startswith("disk.free_limit: expected a size")


def test_a_section_that_is_no_table_stays_a_fault_when_the_command_line_sets_a_key_of_it(toml: Path) -> None:
    assert faults(toml, "listen = 1", listen__backlog=5) == ["listen: expected a table, [listen]"]


def test_files_that_cannot_be_read_as_toml_are_refused(toml: Path) -> None:
    assert faults(toml, "a = = 1")[0].startswith("not TOML: ")
    toml.write_bytes(b"a = '\xff'")
    with pytest.raises(ConfigError, match="not UTF-8 at byte 5"):
        load(toml)
    with pytest.raises(ConfigError, match=r"^configuration file .*absent.toml: No such file"):
        load(toml.with_name("absent.toml"))


def test_a_password_is_never_shown(toml: Path) -> None:
    assert faults(toml, "security.default_password = 12345") == ["security.default_password: expected a valid string"]
    toml.write_text("security.default_password = 'hunter2'")
    config = load(toml)
    assert config.security.default_password == SecretStr("hunter2")
    assert "hunter2" not in repr(config)


@pytest.mark.parametrize(
    ("mark", "expected"), [("0.5", 500), ("1.0", 1000), ("'2MB'", 2_000_000), ("3000000", 3_000_000)]
)
def test_the_memory_watermark_is_a_share_or_a_size(toml: Path, mark: str, expected: int) -> None:
    toml.write_text(f"memory.high_watermark = {mark}")
    assert load(toml).memory.high_watermark_bytes(1000) == expected


def test_topics_have_checks_of_their_own(toml: Path) -> None:
    toml.write_text('[half_messages]\ntopics = ["/ orders 10s 1m 5"]', encoding="utf-8")
    assert load(toml).half_messages.topics == (TopicCheckOptions("/", "orders", 10.0, 60.0, 5),)


@pytest.mark.parametrize("text", ["/ orders 10s 1m", "/ orders 0 1m 5", "/ orders 1s soon 5", "/ orders 1s 1m 0"])
def test_a_line_for_a_topic_that_is_not_understood_is_refused(toml: Path, text: str) -> None:
    toml.write_text(f'[half_messages]\ntopics = ["{text}"]', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"half_messages\.topics\.0: expected a text of five parts, virtual host, "):
        load(toml)


def test_each_key_has_a_variable_of_its_own() -> None:
    assert sorted(variables().values()) == sorted(KEYS)
    assert variables()["ESCROWMQ_LIMITS_FRAME_MAX"] == "limits.frame_max"
    assert variables()["ESCROWMQ_DATA_DIR"] == "data_dir"


@pytest.mark.parametrize(
    ("variable", "text", "key", "expected"),
    [
        ("ESCROWMQ_LIMITS_CONNECTIONS", "7", "connections", 7),
        ("ESCROWMQ_LIMITS_FRAME_MAX", "64KiB", "frame_max", 65536),
        ("ESCROWMQ_LIMITS_HEARTBEAT_SECONDS", "1.5", "heartbeat_seconds", 1.5),
        ("ESCROWMQ_LIMITS_HEARTBEAT_SECONDS", "2m", "heartbeat_seconds", 120.0),
        ("ESCROWMQ_TLS_MIN_VERSION", "1.3", "min_version", "1.3"),
        ("ESCROWMQ_SECURITY_GUEST_LOOPBACK_ONLY", "false", "guest_loopback_only", False),
        ("ESCROWMQ_SECURITY_MECHANISMS", '["PLAIN"]', "mechanisms", ("PLAIN",)),
        ("ESCROWMQ_LISTEN_ADDRESS", "0.0.0.0:1", "address", Address("0.0.0.0", 1)),
        ("ESCROWMQ_SECURITY_DEFAULT_PASSWORD", "1234", "default_password", SecretStr("1234")),
    ],
)
def test_a_variable_has_the_text_of_its_value_or_the_form_of_the_file(
    variable: str, text: str, key: str, expected: object
) -> None:
    section = variables()[variable].split(".")[0]
    found = getattr(getattr(load(environment={variable: text}), section), key)
    assert found == expected
    assert type(found) is type(expected)


def test_the_environment_is_stronger_than_the_file_and_weaker_than_the_command_line(toml: Path) -> None:
    toml.write_text("listen.backlog = 1\nlimits.connections = 1\nlimits.channels_per_connection = 1\n")
    environment = {"ESCROWMQ_LISTEN_BACKLOG": "2", "ESCROWMQ_LIMITS_CONNECTIONS": "2"}
    config = load(toml, {"listen.backlog": 3}, environment)
    assert (config.listen.backlog, config.limits.connections, config.limits.channels_per_connection) == (3, 2, 1)


def test_a_path_in_a_variable_starts_where_the_broker_was_started(toml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toml.write_text("")
    monkeypatch.chdir("/")
    assert load(toml, environment={"ESCROWMQ_DATA_DIR": "some/data"}).data_dir == Path("/some/data")


def test_a_secret_can_be_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("hunter2\n")
    config = load(environment={"ESCROWMQ_SECURITY_DEFAULT_PASSWORD_FILE": str(file)})
    assert config.security.default_password == SecretStr("hunter2")


def test_variables_that_name_no_table_are_ignored() -> None:
    assert load(environment={"ESCROWMQ_URL": "amqp://h", "ESCROWMQ_CONFIG": "x", "LOG_LEVEL": "loud"}) == Config()


@pytest.mark.parametrize(
    ("variable", "text", "fault"),
    [
        ("LIMITS_CONNECTIONS", "many", "expected a valid integer, not 'many'"),
        ("LIMITS_CONNECTIONS", "0", "expected a number greater than or equal to 1, not 0"),
        ("LIMITS_CONECTIONS", "9", "unknown; did you mean ESCROWMQ_LIMITS_CONNECTIONS?"),
        ("LIMITS_FRAME_MAX_FILE", "/f", "unknown; did you mean ESCROWMQ_LIMITS_FRAME_MAX?"),
        ("SECURITY_MECHANISMS", "PLAIN", 'expected a list like ["A", "B"], not \'PLAIN\''),
        ("SECURITY_MECHANISMS", "[]", "expected at least one mechanism, not []"),
        ("DATA_DIR", "", "expected a path, not ''"),
        ("SECURITY_DEFAULT_PASSWORD_FILE", "/absent/file", "/absent/file: No such file or directory"),
    ],
)
def test_a_fault_of_the_environment_names_the_variable(variable: str, text: str, fault: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(environment={f"ESCROWMQ_{variable}": text})
    assert caught.value.lines == (f"environment variable ESCROWMQ_{variable}: {fault}",)


def test_an_invalid_item_of_a_list_names_the_variable() -> None:
    with pytest.raises(ConfigError, match=r"^environment variable ESCROWMQ_SECURITY_MECHANISMS: expected 'PLAIN'"):
        load(environment={"ESCROWMQ_SECURITY_MECHANISMS": '["X"]'})


@pytest.mark.parametrize("key", ["heartbeat_seconds", "silence_seconds"])
def test_times_of_replication_must_fit_the_lease(key: str) -> None:
    with pytest.raises(ConfigError, match=f"command line: replication.{key}: must be less than .*lease_seconds"):
        load(None, {f"replication.{key}": 5.0, "replication.lease_seconds": 4.0})
