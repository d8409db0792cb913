"""The progress of applications: for each, the last epoch that was decided, and the user that it belongs to (SEC-2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.records.changes import encode_change
from escrowmq.core.records.kinds import Kind

if TYPE_CHECKING:
    from escrowmq.core.ports import Log

NOTHING_DECIDED: Final = -1
_SEPARATOR: Final = "\0"


def application_key(vhost: str, application: str) -> str:
    """Return the core's name for an application. It contains the virtual host, so equal names in two of them do not
    clash.
    """
    return f"{vhost}{_SEPARATOR}{application}" if application else ""


def _in_words(key: str) -> str:
    vhost, _, application = key.partition(_SEPARATOR)
    return f"the progress of application '{application}' in vhost '{vhost}'"


@dataclass(slots=True)
class ApplicationProgress:
    """The progress of one application. An answer that names it waits for a sync up to `lsn`.

    `user` is empty if a journal of an older version does not name the owner; then it belongs to administrators.
    """

    key: str
    epoch: int
    user: str
    lsn: int = 0
    concerns: None = None

    @property
    def vhost(self) -> str:
        return self.key.partition(_SEPARATOR)[0]

    @property
    def application(self) -> str:
        return self.key.partition(_SEPARATOR)[2]

    @property
    def title(self) -> str:
        return f"the progress of application '{self.application}'"


class ProgressTable:
    """The progress of all applications, by `application_key`. Changes are recorded, except epochs: those are part of
    the DECIDE record.
    """

    def __init__(self, log: Log) -> None:
        self.limit = 0
        """Number of applications that one user may own; 0 is unlimited."""
        self._log = log
        self._found: dict[str, ApplicationProgress] = {}

    def find(self, key: str) -> ApplicationProgress | None:
        return self._found.get(key)

    def all(self) -> list[ApplicationProgress]:
        """Return every application's progress, in the order in which they began."""
        return list(self._found.values())

    def check_claim(self, key: str, user: str) -> None:
        """Raises LIMIT_EXCEEDED if `user` may not begin the progress of this application."""
        if not self.limit or key in self._found:
            return
        if sum(progress.user == user for progress in self._found.values()) >= self.limit:
            raise BrokerError(
                Condition.LIMIT_EXCEEDED,
                f"user '{user}' has the progress of {self.limit} applications, the limit "
                "(limits.applications_per_user); an operator can reset it with `escrowmq progress reset`",
            )

    def epoch(self, key: str) -> int | None:
        """Return the last epoch that was decided, or None. An answer that names it must wait for `log.end_lsn`."""
        found = self._found.get(key)
        return None if found is None or found.epoch == NOTHING_DECIDED else found.epoch

    def claim(self, key: str, user: str) -> None:
        """Record the owner of an application if it is new. Nothing has been decided for it yet."""
        if user and key not in self._found:
            self._own(key, user)

    def reached(self, key: str, epoch: int, lsn: int) -> None:
        """Note that the DECIDE record that ends at `lsn` has stored `epoch`."""
        self.restore(key, epoch)
        self._found[key].lsn = lsn

    def assign(self, key: str, user: str) -> None:
        """Give an application's progress to another user. The epoch stays."""
        self._own(key, user)

    def reset(self, key: str) -> ApplicationProgress:
        """Forget an application's progress and its owner. Raises NOT_FOUND."""
        found = self._found.get(key)
        if found is None:
            raise BrokerError(Condition.NOT_FOUND, f"{_in_words(key)} is not known")
        self._log.append(Kind.PROGRESS_RESET, encode_change(application=key))
        del self._found[key]
        return found

    def drop_vhost(self, vhost: str) -> None:
        """Forget the progress of all applications of a virtual host that is deleted."""
        for key in self._of_vhost(vhost):
            self.reset(key)

    def _of_vhost(self, vhost: str) -> list[str]:
        return [key for key, progress in self._found.items() if progress.vhost == vhost]

    def _own(self, key: str, user: str) -> None:
        self._log.append(Kind.PROGRESS_OWNED, encode_change(application=key, user=user))
        self.restore_owner(key, user)

    # -- recovery and snapshots

    def restore(self, application: str, epoch: int, user: str | None = None) -> None:
        """Apply a PROGRESS record, or with no `user` the epoch of a DECIDE record."""
        if not application:
            return
        found = self._found.setdefault(application, ApplicationProgress(application, epoch, ""))
        found.epoch = epoch
        if user is not None:
            found.user = user

    def restore_owner(self, application: str, user: str) -> None:
        """Apply a PROGRESS_OWNED record."""
        found = self._found.setdefault(application, ApplicationProgress(application, NOTHING_DECIDED, ""))
        found.user = user

    def restore_reset(self, application: str) -> None:
        """Apply a PROGRESS_RESET record."""
        self._found.pop(application, None)

    def restore_vhost_deleted(self, vhost: str) -> None:
        """Apply a VHOST_DELETED record. Older versions did not reset the progress first."""
        for key in self._of_vhost(vhost):
            del self._found[key]

    def records(self) -> Iterator[tuple[Kind, list[bytes]]]:
        """Return the records of a snapshot."""
        for progress in self._found.values():
            fields: dict[str, Any] = {"application": progress.key, "epoch": progress.epoch, "user": progress.user}
            yield Kind.PROGRESS, [encode_change(**fields)]
