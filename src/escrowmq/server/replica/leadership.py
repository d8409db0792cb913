"""A process that leads on a replicated log: how it got there, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

from escrowmq.config.config import Config
from escrowmq.config.replication import ReplicationSection
from escrowmq.journal.storage import Storage
from escrowmq.replica.engines import EngineLog, SettingsWatch, open_log
from escrowmq.replica.engines.settings import WrongSetting
from escrowmq.server.fatal import die, restart
from escrowmq.server.listener import Bound
from escrowmq.server.reloading import Reloading
from escrowmq.server.replica.follower import Follower
from escrowmq.server.replica.names import node_names
from escrowmq.server.replica.shipper import Shipper
from escrowmq.server.replica.snapshots import SnapshotShipping
from escrowmq.server.replica.standby import Followed, Standby
from escrowmq.server.replica.status import described
from escrowmq.server.supervisor import Supervisor
from escrowmq.urls import redacted

_log = logging.getLogger("escrowmq.replication")


class Leadership:
    """This node leads. `shipper` appends its frames until it is deposed, when the process begins again as a standby."""

    def __init__(
        self,
        follower: Follower,
        log: EngineLog,
        watch: SettingsWatch,
        storage: Storage,
        section: ReplicationSection,
        supervisor: Supervisor,
    ) -> None:
        self._follower = follower
        self._supervisor = supervisor
        self._log = log
        self._watch = watch
        self.child: Callable[[], int | None] = lambda: None
        """Returns the id of a process that has to end together with this one."""
        self.stop: Callable[[], None] = lambda: None
        """Lets the broker stop in order."""
        self.fault: Callable[[], str] = lambda: ""
        """Returns why the process could not begin again; nothing if it could."""
        self.handed_over = False
        """Whether an operator wants another node to lead."""
        self.ends = False
        """Whether the process has been told to end. It does not begin again then."""
        self.patience_seconds = section.lease_seconds - section.silence_seconds
        """For how long nothing is delivered until another node probably leads."""
        self.shipper = Shipper(
            follower.leader,
            section.heartbeat_seconds,
            section.silence_seconds,
            self._deposed,
            synced=section.acknowledge == "both",
        )
        self.snapshots = SnapshotShipping(follower, self.shipper, storage)
        log.approach()

    def is_silent(self) -> bool:
        """Return whether this node does not know for so long that it leads that it must not deliver messages."""
        return self.shipper.is_silent

    def serve(self) -> None:
        """Clients can connect from now on. Tell the other nodes why this one took over, and how long that took."""
        self._supervisor.leads()
        reason, since = self._follower.claimed
        took_ms = round((time.monotonic() - since) * 1000)
        lsn, now_ms = self._follower.copy.end_lsn, round(time.time() * 1000)
        self.shipper.submit(partial(self._follower.leader.report, lsn, now_ms, reason, took_ms))

    def resign(self) -> None:
        """Let another node lead. Everything is written, and no client is connected. Blocks, also while the log does not
        answer, so it belongs to a thread of its own.
        """
        self.snapshots.stop()
        with contextlib.suppress(OSError):  # the next start reads more of the log without the file
            self._follower.write_places()
        self.shipper.stop(resign=True)
        self._watch.stop()
        self._log.close()

    def hand_over(self) -> None:
        """Stop leading, so that another node takes over at once, and begin again as a standby."""
        self.handed_over = True
        self.stop()

    def begin_again(self) -> NoReturn:
        """Begin again as a standby, after `resign`."""
        restart("this node has handed over", None)

    def status(self) -> dict[str, Any]:
        """Return the standing of this node for JSON."""
        shipper = self.shipper
        return {
            **described(self._follower, self._watch.view),
            "silent": shipper.is_silent,
            "appends": shipper.appends,
            "append_seconds": round(shipper.waited_seconds, 6),
        }

    def _deposed(self, error: BaseException) -> NoReturn:
        if self.ends:
            die(f"this node leads no more: {error}")
        restart(f"this node leads no more: {error}", self.child())


def stand_by(
    config: Config,
    storage: Storage,
    bound: Sequence[Bound],
    reloading: Reloading,
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
) -> Leadership | None:
    """Be a standby until this node leads; return None after a signal to stop.

    Raises ReplicaError if the data directory, the log or its settings are refused, and OSError.
    """
    supervisor = Supervisor.of(os.environ)
    supervisor.waits_for_log()
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        followed = runner.run(_stand_by(config, bound, partial(_reach, config, storage, bound), reloading, supervisor))
    if followed is None:
        return None
    return Leadership(followed.follower, followed.log, followed.watch, storage, config.replication, supervisor)


async def _stand_by(
    config: Config,
    bound: Sequence[Bound],
    reach: Callable[[], Followed],
    reloading: Reloading,
    supervisor: Supervisor,
) -> Followed | None:
    return await Standby(config, bound, reach, supervisor.stands_by).serve(reloading)


def _reach(config: Config, storage: Storage, bound: Sequence[Bound]) -> Followed:
    """Open the log once. Raises ReplicaError and OSError."""
    section = config.replication
    url = section.url.get_secret_value()
    log = open_log(url)
    try:
        follower = Follower(
            log,
            redacted(url),
            storage,
            *node_names(section, bound),
            section.lease_seconds,
            chain_contents=config.journal.chain == "contents",
            disk_limit=config.disk.free_limit,
        )
    except BaseException:
        log.close()
        raise
    return Followed(log, follower, SettingsWatch(log, told_of_settings))


def told_of_settings(wrong: tuple[WrongSetting, ...]) -> None:
    """Tell the operator which settings of the log somebody has changed."""
    for each in wrong:
        _log.error("%s; what is confirmed may be lost until it is set right", each)
    if not wrong:
        _log.warning("the settings of the replicated log are right again")
