"""Start of the broker."""

from __future__ import annotations

import logging
import random
from pathlib import Path

import pytest
from argon2 import PasswordHasher
from pydantic import SecretStr

from escrowmq.config.errors import ConfigError
from escrowmq.config.half_messages import HalfMessagesSection
from escrowmq.config.limits import LimitsSection
from escrowmq.config.security import SecuritySection
from escrowmq.core.broker import Broker
from escrowmq.core.groups.options import GroupLimits
from escrowmq.core.half.options import CheckOptions, HalfOptions
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.queue import Session
from escrowmq.core.records.changes import decode_change
from escrowmq.core.records.kinds import STARTED, Kind
from escrowmq.core.topology.declaration import Declaration
from escrowmq.journal.errors import JournalDamaged, JournalError
from escrowmq.journal.journal import Journal
from escrowmq.journal.memory import MemoryStorage
from escrowmq.server.passwords import Passwords
from escrowmq.server.start import (
    advice,
    first_start,
    half_options,
    limit_groups,
    make_private,
    note_start,
    read_definitions,
    recover,
    warn_of_missing_user,
)
from escrowmq.wire.amqp091.properties import Properties
from escrowmq.wire.amqp091.publication import PROTOCOL
from tests.harness.server import SimServer


def opened(storage: MemoryStorage) -> tuple[Journal, Broker]:
    journal = Journal.open(storage)
    broker = Broker(journal, random.Random(1))
    recover(journal, broker)
    return journal, broker


def written(journal: Journal) -> None:
    batch = journal.take_batch(1)
    assert batch is not None
    batch.write()
    journal.batch_done(batch)


def test_the_first_start_creates_a_user_with_all_permissions() -> None:
    storage = MemoryStorage(random.Random(1))
    journal, broker = opened(storage)
    security = SecuritySection(default_user="root", default_password=SecretStr("s3cret"), default_vhost="main")
    first_start(broker, security, Passwords())
    written(journal)
    for each in (broker, opened(storage)[1]):
        assert list(each.directory.vhosts) == ["main"]
        user = each.access.user("root")
        assert user.tags == ("administrator",)
        assert PasswordHasher().verify(user.password_hash, "s3cret")
        each.access.check("root", "main", "queue", "any", "configure")


def test_a_second_start_makes_nothing_again() -> None:
    storage = MemoryStorage(random.Random(1))
    journal, broker = opened(storage)
    first_start(broker, SecuritySection(), Passwords())
    broker.directory.record_access_removed(broker.access.remove_user("guest"))
    written(journal)
    _, again = opened(storage)
    first_start(again, SecuritySection(), Passwords())
    assert not again.access.users


def test_messages_may_expire_into_a_headers_exchange_before_anybody_connects() -> None:
    storage = MemoryStorage(random.Random(1))
    journal, broker = opened(storage)
    broker.directory.add_vhost("/")
    vhost = broker.directory.vhost("/")
    session = Session("test")
    broker.directory.declare_queue(vhost, "dead", Declaration(durable=True), session)
    broker.directory.bind_queue(vhost, "amq.headers", "dead", "", {"x-match": "all", "kind": "order"})
    arguments = {"x-dead-letter-exchange": "amq.headers"}
    queue = broker.directory.declare_queue(vhost, "q", Declaration(durable=True, arguments=arguments), session)
    props = Properties(headers={"kind": "order"}).encode()
    broker.engine.publish(Envelope("", "q", props, protocol=PROTOCOL, durable=True, ttl=1), [b"late"], [queue])
    written(journal)
    _, again = opened(storage)
    again.engine.now += 1000
    again.engine.run_deadlines()
    assert again.directory.vhost("/").queue("dead").ready == 1


def test_the_line_about_recovery_does_not_count_hidden_queues(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "escrowmq")
    storage = MemoryStorage(random.Random(1))
    journal, broker = opened(storage)
    broker.directory.add_vhost("/")
    vhost = broker.directory.vhost("/")
    broker.directory.declare_queue(vhost, "q", Declaration(durable=True), Session("test"))
    assert broker.engine.delays.hold(vhost, {"x-delay": 1000}) in vhost.hidden.values()
    written(journal)
    caplog.clear()
    opened(storage)
    assert "recovered 1 queue with 0 messages in " in caplog.text


@pytest.mark.rule("DUR-3")
@pytest.mark.parametrize("snapshot", [True, False])
def test_each_start_is_recorded_with_how_the_broker_had_stopped(snapshot: bool) -> None:
    storage = MemoryStorage(random.Random(1))
    journal, broker = opened(storage)
    note_start(journal, broker)
    written(journal)
    if snapshot:
        taken = journal.begin_snapshot([], 1)
        taken.write()
        journal.snapshot_done(taken)
        installing = journal.housekeeping()
        assert installing is not None
        installing()
    journal, broker = opened(storage)
    note_start(journal, broker)
    written(journal)
    found = [decode_change(payload) for _, kind, payload, _ in Journal.open(storage).replay() if kind == Kind.OPERATED]
    assert (found[-1]["operation"], found[-1]["by"]) == (STARTED, "")
    assert found[-1]["arguments"]["stopped_cleanly"] is snapshot


def test_bytes_that_recovery_cut_off_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    storage = MemoryStorage(random.Random(1))
    journal, broker = opened(storage)
    broker.directory.add_vhost("kept")
    written(journal)
    broker.directory.add_vhost("torn")
    end = journal.synced_lsn
    written(journal)
    (name,) = [name for name in storage.names() if name.endswith(".log")]
    storage.flip(name, 8 * (end + 64 + 60))
    with caplog.at_level(logging.WARNING):
        _, again = opened(storage)
    assert list(again.directory.vhosts) == ["kept"]
    assert f"bytes of {name} from offset" in caplog.text


def test_a_record_of_a_later_version_is_refused() -> None:
    storage = MemoryStorage(random.Random(1))
    journal, _ = opened(storage)
    journal.append(250, b"?")
    written(journal)
    with pytest.raises(JournalError, match=r"record at LSN .* is of kind 250, which this version does not know"):
        opened(storage)


def test_errors_about_damage_contain_advice() -> None:
    text = str(advice(JournalDamaged("0000.log", 77, "the frame is broken"), "/data"))
    assert text.startswith("journal damaged: 0000.log at offset 77: the frame is broken; nothing was changed.")
    assert "escrowmq inspect /data" in text


def test_the_settings_of_half_messages_are_those_of_the_core_by_default() -> None:
    assert half_options(HalfMessagesSection()) == HalfOptions()


def test_the_limits_of_consumer_groups_are_those_of_the_core_by_default() -> None:
    limits = GroupLimits(1, 1, 1)
    limit_groups(limits, LimitsSection())
    assert limits == GroupLimits()
    limit_groups(limits, LimitsSection(groups_per_vhost=2, group_outstanding=3, lease_seconds=1.5))
    assert limits == GroupLimits(2, 3, 1_500)


@pytest.mark.rule("HALF-4")
def test_the_checks_of_half_messages_are_configured_for_the_broker_and_for_topics() -> None:
    values = {"timeout_seconds": 1.5, "checks": 3, "topics": ["/ orders 10s 0.1ms 5"]}
    section = HalfMessagesSection.model_validate(values)
    options = half_options(section)
    assert options.of("/", "other") == CheckOptions(1_500, 30_000, 3)
    assert options.of("/", "orders") == CheckOptions(10_000, 1, 5)


def test_a_data_directory_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    tmp_path.joinpath("file").touch()
    wanted = tmp_path / "file" / "data"
    with pytest.raises(OSError, match=f"cannot create the data directory {wanted}: Not a directory"):
        make_private(wanted)


@pytest.mark.parametrize("text", [None, "{", "[]"])
def test_a_file_of_definitions_that_cannot_be_used_is_named(text: str | None, tmp_path: Path) -> None:
    file = tmp_path / "definitions.json"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=f"load_definitions = {file}: "):
        read_definitions(file)


def test_a_setting_that_names_a_missing_user_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    broker = SimServer(MemoryStorage(random.Random(1))).broker
    for user in ("", "guest", "bob"):
        warn_of_missing_user(broker, "rocketmq.anonymous_user", user)
    (line,) = caplog.messages
    assert line.startswith("rocketmq.anonymous_user is 'bob', but no such user exists")
