"""The life of the process: lock the data directory, recover, serve, and stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import Callable, Sequence
from random import SystemRandom
from typing import TYPE_CHECKING, Final

from escrowmq import logs
from escrowmq.config.config import Config
from escrowmq.config.errors import ConfigError
from escrowmq.config.limits import LimitsSection
from escrowmq.core.broker import Broker
from escrowmq.journal.errors import JournalDamaged
from escrowmq.journal.journal import Journal
from escrowmq.journal.markers import check_alone, check_markers
from escrowmq.journal.storage import FileStorage, check_unlocked
from escrowmq.loops import new_event_loop
from escrowmq.server.http import missing_modules
from escrowmq.server.listener import Bound, bind_all, bind_http, bind_rocketmq
from escrowmq.server.reloading import APPLIED, Reloading
from escrowmq.server.resources import allow_descriptors, return_large_blocks
from escrowmq.server.server import Server
from escrowmq.server.start import (
    advice,
    half_options,
    limit_groups,
    make_private,
    note_start,
    read_definitions,
    recover,
)
from escrowmq.server.tls import server_context
from escrowmq.server.tokens.setting_up import check_settings, is_installed

if TYPE_CHECKING:
    from escrowmq.server.replica.leadership import Leadership

SWITCH_SECONDS: Final = 0.0005
"""The time after which the journal's writer gets the interpreter while the event loop is busy."""

_log = logging.getLogger("escrowmq.server")


class BadSetting(ConfigError):  # noqa: N818 - named for what happened
    """A setting cannot be used. The text names it, and the option that sets it."""


class MissingExtra(BadSetting):
    """A setting needs packages that are not installed."""


def run(config: Config, read: Callable[[], Config]) -> None:
    """Serve until SIGTERM or SIGINT. Raises ConfigError, JournalError, OSError when the broker cannot start.

    On SIGHUP, `read` returns the configuration anew, or raises ConfigError.

    Errors that can be found without the data directory are raised before anything is created or read there.
    """
    reloading = Reloading(config, read)
    config = config.model_copy(update={"data_dir": config.data_dir.absolute()})
    logs.configure(config.log.level, config.log.format)
    return_large_blocks()
    config = config.model_copy(update={"limits": fitting(config.limits, allow_descriptors)})
    dual = config.rocketmq.enabled and config.tls.certificate and config.tls.key
    secured = server_context(config.tls) if config.listen.tls_address or config.http.tls or dual else None
    reloading.context = secured if config.listen.tls_address or dual else None
    if config.tokens.issuer and not is_installed():
        raise MissingExtra("tokens.issuer: joserfc is not installed: pip install 'escrowmq[tokens]'")
    check_settings(config.tokens)
    if url := config.replication.url.get_secret_value():
        _check_replication(url)
    bound: list[Bound] = []
    if config.load_definitions is not None:
        read_definitions(config.load_definitions)
    if config.http.address is not None and (missing := missing_modules()):
        verb = "is" if len(missing) == 1 else "are"
        raise MissingExtra(
            f"http.address (--http): {', '.join(missing)} {verb} not installed: pip install 'escrowmq[http]'"
        )
    try:
        try:
            bound += bind_all(config.listen)
            if config.rocketmq.enabled:
                bound += bind_rocketmq(config.rocketmq)
            if config.http.address is not None:
                bound.append(bind_http(config.http.address, tls=config.http.tls))
        except OSError:
            check_unlocked(config.data_dir)  # the broker that has the data directory probably has the ports, too
            raise
        _run(config, bound, reloading)
    finally:
        for each in bound:
            each.close()


def _check_replication(url: str) -> None:
    """Raise BadSetting unless the URL is valid, and MissingExtra unless the library for its engine is installed."""
    from escrowmq.replica.engines.errors import EngineMissing
    from escrowmq.replica.engines.opening import check_url

    try:
        check_url(url)
    except ValueError as error:
        raise BadSetting(f"replication.url (--replicate): {error}") from None
    except EngineMissing as error:
        raise MissingExtra(f"replication.url (--replicate): {error}") from None


def fitting(limits: LimitsSection, allow: Callable[[int], int]) -> LimitsSection:
    """The limits, with as many connections as the system allows. A quarter of them at most need not have logged in.

    `allow` is `allow_descriptors`.
    """
    wanted = limits.connections + limits.unauthenticated_connections
    room = allow(wanted)
    if room >= wanted:
        return limits
    strangers = min(limits.unauthenticated_connections, max(room // 4, 1))
    connections = max(min(limits.connections, room - strangers), 1)
    _log.warning(
        "the system's limit of open files leaves room for %d connections and %d that have not logged in, not for %d "
        "and %d (limits.connections, limits.unauthenticated_connections)",
        *(connections, strangers, limits.connections, limits.unauthenticated_connections),
    )
    return limits.model_copy(update={"connections": connections, "unauthenticated_connections": strangers})


def _run(config: Config, bound: Sequence[Bound], reloading: Reloading) -> None:
    make_private(config.data_dir)
    check_markers(config.data_dir)
    if not config.replication.url.get_secret_value():
        check_alone(config.data_dir)
    storage = FileStorage(config.data_dir)
    leadership = None
    if config.replication.url.get_secret_value():
        from escrowmq.server.replica.leadership import stand_by

        leadership = stand_by(config, storage, bound, reloading, new_event_loop)
        if leadership is None:
            storage.close()
            return
        config = config.model_copy(update={name: getattr(reloading.config, name) for name in APPLIED})
    gc.disable()  # recovery creates no garbage
    try:
        journal = Journal.open(
            storage,
            segment_bytes=config.journal.segment_bytes,
            keep_dead_bytes=config.journal.retain_bytes,
            chain_contents=config.journal.chain == "contents",
            sink=leadership.shipper if leadership is not None else None,
        )
        broker = Broker(journal, SystemRandom(), resident_limit=config.memory.queue_resident_bytes)
        broker.half.options = half_options(config.half_messages)
        limit_groups(broker.groups.limits, config.limits)
        recover(journal, broker)
        if storage.free_bytes() >= config.disk.free_limit:  # what is left is for settling messages
            note_start(journal, broker)
        if config.journal.detail == "deliveries":
            broker.engine.record_deliveries()
    except JournalDamaged as error:
        raise advice(error, config.data_dir) from error
    sys.setswitchinterval(SWITCH_SECONDS)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_serve(config, storage, journal, broker, bound, reloading, leadership))
    if leadership is not None and leadership.handed_over and not leadership.ends:
        leadership.begin_again()


async def _serve(
    config: Config,
    storage: FileStorage,
    journal: Journal,
    broker: Broker,
    bound: Sequence[Bound],
    reloading: Reloading,
    leadership: Leadership | None,
) -> None:
    await Server(config, storage, journal, broker, bound, leadership).serve(reloading)
