"""Operations on the termini of AMQP 1.0 links: list them, release their deliveries, or end them."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping

from escrowmq.admin.operation import Listing, Operation, OperationRefused, Row
from escrowmq.admin.pieces import Pieces
from escrowmq.admin.ports import BrokerProcess
from escrowmq.core.termini.terminus import LinkRole, Terminus, TerminusKey, TerminusState


class LinkAdmin:
    """The operations by name are in `operations`. Raises OperationRefused for an unknown link."""

    def __init__(self, process: BrokerProcess, pieces: Pieces) -> None:
        self._process = process
        self._termini = process.broker.termini
        self._pieces = pieces
        self.operations: Mapping[str, Operation] = {
            "link.list": self.list_links,
            "link.release": self.release,
            "link.expire": self.expire,
        }

    async def list_links(self) -> Listing:
        """Return every terminus. Ages are in seconds; `expires` is the time until the terminus expires, if it will."""
        return Listing(self._pieces, map(self._row, list(self._termini.by_key.values())))

    async def release(self, vhost: str, container: str, link: str) -> int:
        """Return the deliveries of a suspended outgoing terminus, by its default outcome. Return their number."""
        terminus = self._found(vhost, container, link, LinkRole.OUTGOING)
        if terminus.state is TerminusState.ATTACHED:
            raise OperationRefused(f"{terminus.title} is attached; close its connection, or let the client settle")
        return await self._process.durably(lambda: self._termini.release(terminus))

    async def expire(self, vhost: str, container: str, link: str, role: str) -> int:
        """End a terminus, and return the number of deliveries that were unsettled on it. A client that has it attached
        is told.
        """
        terminus = self._found(vhost, container, link, _role(role))
        count = terminus.unsettled
        await self._process.durably(lambda: self._termini.end(terminus))
        return count

    def _found(self, vhost: str, container: str, link: str, role: LinkRole) -> Terminus:
        terminus = self._termini.find(TerminusKey(vhost, container, link, role))
        if terminus is None:
            raise OperationRefused(f"no {role} link '{link}' of container '{container}' in vhost '{vhost}'")
        return terminus

    def _row(self, terminus: Terminus) -> Row:
        key, settings, now = terminus.key, terminus.settings, self._termini.engine.now
        waiting = terminus.unsettled_since
        due = terminus.deadline
        return {
            "vhost": key.vhost,
            "container": key.container,
            "link": key.link,
            "role": key.role.value,
            "user": terminus.user,
            "state": terminus.state.name.lower(),
            "seconds": (now - terminus.since) // 1000,
            "unsettled": terminus.unsettled,
            "age": (now - waiting) // 1000 if terminus.unsettled else None,
            "address": settings.address,
            "settles": "second" if settings.second else "first",
            "durability": settings.durability.name.lower().replace("_", "-"),
            "expiry": settings.policy.value,
            "timeout": settings.timeout_ms // 1000,
            "expires": None if due is None else max(due.at - now, 0) // 1000,
        }


def ending(process: BrokerProcess, termini: Iterable[Terminus]) -> Generator[None, None, None]:
    """End termini, one in each step."""
    for terminus in termini:
        if terminus.state is not TerminusState.GONE:
            process.begin()
            process.broker.termini.end(terminus)
        yield


def _role(text: str) -> LinkRole:
    try:
        return LinkRole(text)
    except ValueError:
        raise OperationRefused(f"the role of a link is incoming or outgoing, and not {text!r}") from None
