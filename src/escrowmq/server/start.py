"""Start of the broker: recovery, the data directory, and the first user."""

from __future__ import annotations

import asyncio
import logging
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from escrowmq import __version__, definitions
from escrowmq.admin.action import OperatorAction, acting, record_action
from escrowmq.admin.operation import Operation, OperationRefused
from escrowmq.config.errors import ConfigError
from escrowmq.config.half_messages import HalfMessagesSection
from escrowmq.config.limits import LimitsSection
from escrowmq.config.security import SecuritySection
from escrowmq.core.access.permissions import unsupported
from escrowmq.core.branches.branch import State
from escrowmq.core.broker import Broker
from escrowmq.core.conditions import BrokerError
from escrowmq.core.groups.options import GroupLimits
from escrowmq.core.half.options import CheckOptions, HalfOptions
from escrowmq.core.records.kinds import STARTED
from escrowmq.core.recovery.replay import Recovery, RecoveryError
from escrowmq.journal.errors import JournalDamaged, JournalError
from escrowmq.journal.journal import Journal
from escrowmq.server.clock import resume
from escrowmq.server.passwords import Passwords
from escrowmq.text import counted
from escrowmq.wire.admission import ADMISSIONS
from escrowmq.wire.formats import FORMATS

_log = logging.getLogger("escrowmq.journal")
_server_log = logging.getLogger("escrowmq.server")


def half_options(section: HalfMessagesSection) -> HalfOptions:
    """Return the configured settings of half messages, with times in milliseconds."""
    topics = {
        (each.vhost, each.topic): CheckOptions(_ms(each.timeout), _ms(each.interval), each.checks)
        for each in section.topics
    }
    check = CheckOptions(_ms(section.timeout_seconds), _ms(section.check_interval_seconds), section.checks)
    return HalfOptions(check, topics, _ms(section.outcome_kept_seconds), section.outcomes, section.per_user)


def limit_groups(limits: GroupLimits, section: LimitsSection) -> None:
    """Set the limits of consumer groups to the configured ones."""
    limits.groups, limits.outstanding = section.groups_per_vhost, section.group_outstanding
    limits.lease_ms = _ms(section.lease_seconds)


def _ms(seconds: float) -> int:
    return max(round(seconds * 1000), 1)


def recover(journal: Journal, broker: Broker) -> None:
    """Replay the journal into an empty broker. Raises JournalError."""
    started = time.perf_counter()
    broker.engine.now = time.time_ns() // 1_000_000
    broker.formats.update(FORMATS)
    broker.admissions.update(ADMISSIONS)
    recovery = Recovery(broker)
    lsn = last_us = 0
    try:
        for lsn, kind, payload, last_us in journal.replay():  # noqa: B007 - the time of the last record is needed
            recovery.apply(lsn, kind, payload)
        resume(broker.engine, last_us // 1000)
        recovery.finish()
    except RecoveryError as error:
        raise JournalError(str(error)) from error
    broker.directory.end_restore()
    for entry in broker.access.entries():
        fault = unsupported(entry)
        if fault is not None:
            _server_log.warning("a pattern in %s allows nothing until it is set again: %s", entry, fault.text)
    report = journal.recovery
    if report.cut_file is not None or report.notes:
        _log.warning("%s", report)
    else:
        _log.info("%s", report)
    names = sum(queue.durable for vhost in broker.directory.vhosts.values() for queue in vhost.queues.values())
    _log.info(
        "recovered %s with %s in %.2f s",
        counted(names, "queue"),
        counted(sum(queue.ready for queue in broker.directory.durable_queues()), "message"),
        time.perf_counter() - started,
    )
    in_doubt = sum(branch.state is State.PREPARED for branch in broker.branches.by_xid.values())
    if in_doubt:
        _log.warning(
            "%s in doubt, waiting for a transaction manager: see `escrowmq tx list --in-doubt`",
            "1 transaction branch is" if in_doubt == 1 else f"{in_doubt} transaction branches are",
        )


def note_start(journal: Journal, broker: Broker) -> None:
    """Record the start, for the timeline of the journal."""
    report = journal.recovery
    arguments = {
        "version": __version__,
        "stopped_cleanly": report.end_lsn in (0, report.snapshot_lsn),
        "cut_bytes": report.cut_bytes,
    }
    action = OperatorAction(STARTED, arguments, by="", why="")
    with acting(action):
        record_action(broker)


def advice(error: JournalDamaged, data_dir: object) -> JournalDamaged:
    """Return the same error, with advice on what to do."""
    why = (
        f"{error.why}; nothing was changed. Examine the journal with `escrowmq inspect {data_dir}`, "
        "and restore the data directory from a backup"
    )
    return JournalDamaged(error.file, error.offset, why)


def make_private(data_dir: Path) -> None:
    """Create the data directory, for its owner only; warn if it exists and others have access. Raises OSError."""
    if not data_dir.exists():
        try:
            data_dir.mkdir(mode=0o700, parents=True)
        except OSError as error:
            raise OSError(error.errno, f"cannot create the data directory {data_dir}: {error.strerror}") from error
        return
    mode = stat.S_IMODE(data_dir.stat().st_mode)
    if mode & 0o077:
        _server_log.warning(
            "the data directory %s is accessible to others (mode %04o), and its contents are not encrypted: "
            "chmod 700 %s",
            *(data_dir, mode, data_dir),
        )


def first_start(broker: Broker, security: SecuritySection, passwords: Passwords) -> None:
    """Create the first user and virtual host if there are none."""
    if broker.access.users or broker.directory.vhosts:
        return
    user, vhost = security.default_user, security.default_vhost
    broker.directory.add_vhost(vhost)
    hashes = passwords.hashes(security.default_password.get_secret_value())
    broker.directory.record_access(
        broker.access.add_user(user, hashes.password_hash, ("administrator",), hashes.scram_hashes)
    )
    broker.directory.record_access(broker.access.set_permission(user, vhost, ".*", ".*", ".*"))
    _log.info("first start: created vhost %r and user %r", vhost, user)


def read_definitions(path: Path) -> dict[str, Any]:
    """Return the contents of a file of definitions. Raises ConfigError if it cannot be read or is malformed."""
    try:
        return definitions.parsed(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"load_definitions = {path}: {error.strerror}") from error
    except definitions.DefinitionsError as error:
        raise ConfigError(f"load_definitions = {path}: {error}") from error


async def load_definitions(path: Path, operations: Mapping[str, Operation]) -> None:
    """Import a file of definitions. Raises ConfigError if it cannot be read, is malformed, or one of its objects is
    refused.
    """
    document = await asyncio.to_thread(read_definitions, path)
    try:
        for part in definitions.parts(document):
            await operations["definitions.import"](section=part.section, objects=part.objects)
    except (definitions.DefinitionsError, OperationRefused, BrokerError) as error:
        reason = error.text if isinstance(error, BrokerError) else str(error)
        raise ConfigError(f"load_definitions = {path}: {reason}") from error
    for section, count in definitions.ignored(document).items():
        _server_log.warning("%s: %d %s are not supported and were left out", path, count, section)


def warn_of_missing_user(broker: Broker, setting: str, user: str) -> None:
    """Warn if a setting names a user that does not exist: clients without credentials are then refused."""
    if user and user not in broker.access.users:
        _server_log.warning(
            "%s is '%s', but no such user exists, so clients without credentials are refused: see `escrowmq user add`",
            *(setting, user),
        )
