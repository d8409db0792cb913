"""The thread of a standby: it follows the replicated log, and claims the leadership when the leader is silent."""

from __future__ import annotations

import contextlib
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Event
from typing import Final

from escrowmq.journal.format import parse_name, segment_name
from escrowmq.journal.storage import Storage
from escrowmq.replica.copy import DiskCopy
from escrowmq.replica.coverage import LackingPart
from escrowmq.replica.entries import ID_SIZE, TakeOverReason
from escrowmq.replica.errors import AppendUnknown, EntriesLost, EntriesTrimmed
from escrowmq.replica.leader import Leader
from escrowmq.replica.live_map import begun_by_map
from escrowmq.replica.log import ReplicatedLog
from escrowmq.replica.standing import CopyComparison, Sign, Silence, StandbyStep, Standing, next_step
from escrowmq.replica.tail import LogTail, SegmentPlace
from escrowmq.server.replica.places import TakeOver, read_places, read_take_overs, write_places
from escrowmq.server.replica.presence import GRACE_SECONDS, LeaderPresence
from escrowmq.server.replica.shipper import REPORT_SECONDS
from escrowmq.text import counted

POLL_SECONDS: Final = 0.05
GONE_POLL_SECONDS: Final = 0.01
"""The same once the leader's process has ended."""
RETRY_SECONDS: Final = 0.5
SYNC_SECONDS: Final = 1.0
COPYING: Final = "replica.copying"
"""The file that is there while an empty node copies what lives. Without the rest, its segments are of no use."""
_TAKE_OVERS: Final = 100
_UNREAD: Final = "the replicated log cannot be read"

_log = logging.getLogger("escrowmq.replication")


@dataclass(slots=True)
class NodeView:
    """What a node knows about itself and the leader. Read by other threads."""

    node: str
    role: str = "standby"
    epoch: int = 0
    leader: str = ""
    leader_url: str = ""
    fault: str = ""
    """Why this node cannot follow the log; empty if it can."""
    followed_at: float = 0.0
    """When this node last had read the log to its end, by `time.monotonic()`; 0 before the first time."""
    heard_at: float = 0.0
    """When the last entry of the leader was read."""
    take_overs: deque[TakeOver] = field(default_factory=lambda: deque(maxlen=_TAKE_OVERS))


class LoggedEvents:
    """Writes what happened to the copy into the log of the process."""

    def cut(self, lsn: int, frames: int) -> None:
        """See `CopyEvents.cut`."""
        _log.warning("cut off %d frame at LSN %#x, which was written here and never counted", frames, lsn)

    def diverged(self, lsn: int, frames: int, names: list[str]) -> None:
        """See `CopyEvents.diverged`."""
        _log.error(
            "the replicated log has lost %d frames from LSN %#x on, and other nodes went on without them; they are "
            "kept in %s of the data directory. Messages in them were confirmed and are not in the broker any more: see "
            "docs/guides/replication.md",
            *(frames, lsn, ", ".join(names)),
        )


class Follower:
    """Follows the log on the thread that calls `run`. `name` is that of the log, without a password."""

    def __init__(
        self,
        log: ReplicatedLog,
        name: str,
        storage: Storage,
        node: str,
        url: str,
        silence_seconds: float,
        *,
        chain_contents: bool,
    ) -> None:
        self._log = log
        self._name = name
        self._storage = storage
        self.url = url
        self._chain_contents = chain_contents
        self.view = NodeView(node)
        self._silence = Silence(_now_ms(), round(silence_seconds * 1000))
        self._standing = Standing(node, self._silence)
        self._stop = Event()
        self._presence = LeaderPresence()
        self._gone: tuple[float, int] | None = None
        """Since when the leader's process has ended and nothing has counted, and how much had counted then."""
        self._synced_at = 0.0
        self.synced_lsn = 0
        """Everything before it is on this node's disk; 0 until the log was read to its end."""
        self._watched = False
        """Whether this process has seen a leader that had not resigned. Another resignation may be its own."""
        self._written: tuple[SegmentPlace, TakeOver | None] | None = None
        self._report_at = 0.0
        self.claimed = TakeOverReason.NONE, 0.0
        """Why this node claimed, and when no node served clients any more, by `time.monotonic()`."""
        self.view.take_overs.extend(read_take_overs(storage, name))
        self._lacking: LackingPart | None = None
        """What the operator was told that the copy lacks."""
        self._open(read_places(storage, name))

    def _open(self, places: Sequence[SegmentPlace]) -> None:
        """Begin to read, at one of `places` that this node's files reach, or at the beginning."""
        names = self._storage.names()
        places = [place for place in places if segment_name(place.lsn) in names]
        self.copy = DiskCopy(self._storage, LoggedEvents(), chain_contents=self._chain_contents)
        self.tail = LogTail.opened(self._log, self.copy, places)
        self.leader = Leader(self._log, self.tail, self.view.node, self.url, partial(secrets.token_bytes, ID_SIZE))

    def stop(self) -> None:
        """Let `run` return soon. May be called on any thread."""
        self._stop.set()

    def run(self, followed: Callable[[], None] = lambda: None) -> bool:
        """Follow until this node leads, and return True; False after `stop`.

        `followed` is called when the end of the log is reached for the first time. Raises ReplicaError.
        """
        self._presence.start()
        try:
            return self._run(followed)
        finally:
            self._presence.stop()

    def _run(self, followed: Callable[[], None]) -> bool:
        whole = mapped = False
        empty = True
        again: Sequence[SegmentPlace] | None = None
        while not self._stop.is_set():
            try:
                if empty:
                    empty, mapped = False, self._begin_by_map()
                if again is not None:
                    self._open(again)
                    again = None
                self._follow()
                if mapped:
                    mapped = False
                    self._check_map()
                if not whole:
                    whole = True
                    self._sync()
                    followed()
                self._look_for_leader()
                self._report()
                if self.leader.leads or self._takes_over():
                    self._prepare()
                    self._fault("")
                    return True
            except (OSError, AppendUnknown) as error:
                if self.tail.interrupted and again is None:
                    again = self.tail.segments
                self._fault(str(error), "the copy of the journal cannot be written" if again is not None else _UNREAD)
                self._silence.heard(_now_ms())  # the leader may be there, but cannot be heard
                self._stop.wait(RETRY_SECONDS)
                continue
            except (EntriesLost, EntriesTrimmed) as error:
                _log.warning("%s; this node reads the log again", error)
                self._standing.found_loss |= isinstance(error, EntriesLost)
                again = ()
                self._stop.wait(POLL_SECONDS)
                continue
            self._fault("")
            self._stop.wait(POLL_SECONDS if self._gone is None else GONE_POLL_SECONDS)
        self.copy.sync()
        return False

    def _begin_by_map(self) -> bool:
        """If this node's files are empty, copy only what lives, and return whether the log had a map of that.

        Raises as `run` does.
        """
        names = self._storage.names()
        if COPYING in names:  # the last start was interrupted
            for name in names:
                if parse_name(name) is not None:
                    self._storage.delete(name)
        elif any(parse_name(name) is not None for name in names):
            return False
        self._storage.create(COPYING)
        self._storage.sync(COPYING)
        self._storage.finish(COPYING)
        copy = DiskCopy(self._storage, LoggedEvents(), chain_contents=self._chain_contents)
        try:
            tail = begun_by_map(self._log, copy)
        except EntriesLost as error:  # the leader may just have trimmed it
            raise EntriesTrimmed(self._log.begin(), error.position) from error
        if tail is None:
            self._storage.delete(COPYING)
            return False
        self.copy, self.tail = copy, tail
        self.leader = Leader(self._log, self.tail, self.view.node, self.url, partial(secrets.token_bytes, ID_SIZE))
        return True

    def _check_map(self) -> None:
        """Raise EntriesTrimmed if the map of what lives does not count, so that the whole log has to be read."""
        if not self.tail.fold.map:
            raise EntriesTrimmed(self._log.begin(), 0)
        self._sync()
        self._storage.delete(COPYING)

    def _fault(self, text: str, what: str = "") -> None:
        """Note why this node cannot follow, and what fails; nothing if it can."""
        if text and not self.view.fault:
            _log.warning("%s: %s", what, text)
        if self.view.fault and not text:
            _log.warning("this node follows the replicated log again")
        self.view.fault = text

    def _follow(self) -> None:
        before = self.tail.counted
        self.tail.read_to_end()
        self.view.followed_at = time.monotonic()
        if self.tail.counted != before:
            self.view.heard_at = self.view.followed_at
            self._silence.heard(_now_ms())
            if time.monotonic() - self._synced_at >= SYNC_SECONDS:
                self._sync()
        self.note()

    def _sync(self) -> None:
        end = self.copy.end_lsn
        self.copy.sync()
        self.synced_lsn = end
        self._synced_at = time.monotonic()
        self.write_places()

    def write_places(self) -> None:
        """Note where the segments begin, if that has changed. Raises OSError."""
        places, take_overs = list(self.tail.segments), self.take_overs()
        if not places:
            return
        newest = places[-1], take_overs[-1] if take_overs else None
        if newest != self._written:
            write_places(self._storage, self._name, places, take_overs)
            self._written = newest

    def take_overs(self) -> list[TakeOver]:
        """Return the take-overs that this node knows of, with what their nodes have reported. May be called on any
        thread.
        """
        found = []
        for each in list(self.view.take_overs):
            report = self.tail.fold.take_overs.get(each.epoch)
            if report is not None and report.node == each.node:
                reason = report.reason.name.lower()
                each = each._replace(seen=report.time_ms / 1000, reason=reason, seconds=report.took_ms / 1000)
            found.append(each)
        return found

    def note(self) -> None:
        """Note who leads."""
        fold, view = self.tail.fold, self.view
        self._watched |= fold.leader is not None and not fold.resigned
        if fold.leader is None or fold.epoch == view.epoch:
            return
        for each in fold.leaders:
            last = view.take_overs[-1] if view.take_overs else None
            if last is None or each.epoch > last.epoch:  # else it was known before this process began
                before = last.node if last is not None else ""
                view.take_overs.append(TakeOver(*each, time.time(), before))
        view.epoch, view.leader, view.leader_url = fold.epoch, fold.leader.node, fold.leader.url
        _log.info("node %s leads since epoch %d: %s", view.leader, fold.epoch, view.leader_url)

    def _takes_over(self) -> bool:
        """Do what the signs of the leader demand, and return whether this node leads now."""
        if not self._may_have_to_act():
            return False
        if not self._is_whole():
            return False
        fold, now_ms, standing = self.tail.fold, _now_ms(), self._standing
        self.copy.note_end()
        if not standing.found_loss:
            self.copy.drop_uncounted(fold.epoch)
        copy = self.copy.end
        longer = copy.lsn > fold.next_lsn
        sign = standing.sign(now_ms, resigned=fold.resigned, hole=fold.hole, notices=fold.notices, longer=longer)
        if sign is Sign.HEARD and fold.leader is None:
            sign = Sign.SILENT
        holding = CopyComparison.LONGER if longer else CopyComparison.EQUAL
        step = next_step(sign, holding, standing.notices(now_ms, fold.notices, copy))
        if step is StandbyStep.NOTICE:
            _log.warning(
                "this node has frames up to LSN %#x, and the replicated log up to %#x", copy.lsn, fold.next_lsn
            )
            self.leader.give_notice(copy)
        return step is StandbyStep.CLAIM and self._claim()

    def _report(self) -> None:
        """Show operators on other nodes how far this one follows, now and then while another one leads."""
        fold, now = self.tail.fold, time.monotonic()
        if now < self._report_at or fold.leader is None or fold.resigned or self._silence.lasts(_now_ms()):
            return
        self._report_at = now + REPORT_SECONDS
        with contextlib.suppress(AppendUnknown):
            self.leader.report(self.copy.end_lsn, round(time.time() * 1000))

    def _look_for_leader(self) -> None:
        """Do not wait for the lease if the leader's process has ended, and nothing more of it comes."""
        fold, now = self.tail.fold, time.monotonic()
        watched = fold.leader is not None and not fold.resigned and fold.leader.url != self.url
        self._presence.watch(fold.leader.url if watched and fold.leader is not None else "")
        if not self._presence.is_gone:
            self._gone = None
        elif self._gone is None or self._gone[1] != self.tail.counted:
            self._gone = now, self.tail.counted
        elif now - self._gone[0] >= GRACE_SECONDS:
            self._silence.end(_now_ms())

    def _may_have_to_act(self) -> bool:
        """Return whether there is a reason to look at the copy. A resignation from before the start may be this node's
        own, and is waited for like silence.
        """
        fold = self.tail.fold
        if fold.leader is None or fold.hole or fold.notices or self._standing.found_loss:
            return True
        return self._silence.lasts(_now_ms()) or (fold.resigned and self._watched)

    def _is_whole(self) -> bool:
        """Return whether a broker can start with the copy. A node whose copy is not whole waits for another one."""
        lacking = self.copy.lacking_part()
        if lacking is not None and lacking != self._lacking:
            _log.error(
                "this node cannot lead: its files lack %s, and neither it nor the replicated log has a snapshot that "
                "covers it. Start a node that has one, and this node follows it",
                lacking,
            )
        self._lacking = lacking
        return lacking is None

    def _claim(self) -> bool:
        """Claim, unless a leader was there meanwhile, and return whether this node leads now.

        A process that was stopped before this call may have missed that the leader is there.
        """
        counted = self.tail.counted
        self._follow()
        if self.tail.counted != counted:
            return False
        self.claimed = self._reason(), self.view.heard_at or time.monotonic()
        _log.info("no node leads: this one claims to lead")
        leads = self.leader.take_over(self.copy.greatest_epoch)
        self.note()
        if not leads:
            self._silence.heard(_now_ms())
        return leads

    def _reason(self) -> TakeOverReason:
        fold = self.tail.fold
        if fold.hole or fold.notices or self._standing.found_loss:
            return TakeOverReason.LOSS
        if fold.leader is None:
            return TakeOverReason.FIRST
        if fold.resigned:
            return TakeOverReason.RESIGNED
        return TakeOverReason.ENDED if self._presence.is_gone else TakeOverReason.SILENT

    def _prepare(self) -> None:
        """Append what only this node has, and let the journal's writer begin where the log ends."""
        restored = self.leader.restore(list(self.copy.pieces_ahead()), self.copy.newest_snapshot())
        if restored:
            _log.warning("appended %s that the replicated log did not have", counted(restored, "frame"))
        self.copy.hand_over()
        self.view.role = "leader"
        self.note()


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
