"""One request of a browser that has logged in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from escrowmq.admin.http.broker import AskedBroker
from escrowmq.admin.http.kept_lists import KeptLists
from escrowmq.admin.http.listing import chosen
from escrowmq.admin.http.logins import ADMINISTRATOR, Operator
from escrowmq.console.rates import Rates
from escrowmq.console.sessions import LoginSession
from escrowmq.evidence.files import BrokerFiles

PAGE_SIZE = "50"


class Visit(NamedTuple):
    """Who asks for a page, the names in its path, and the query."""

    broker: AskedBroker
    lists: KeptLists
    rates: Rates
    files: BrokerFiles
    session: LoginSession
    operator: Operator
    path: str
    names: Mapping[str, str]
    query: Mapping[str, str]

    @property
    def administrator(self) -> bool:
        """Whether the user may change something, and may see messages."""
        return ADMINISTRATOR in self.operator.tags

    async def ask(self, operation: str, **arguments: Any) -> Any:
        """Return the result of an operation of the broker. Raises BrokerUnavailable, BrokerRefused."""
        return await self.broker.ask(operation, **arguments)

    def page(self, rows: list[dict[str, Any]]) -> Any:
        """Return one page of a list, as the query asks for it. Raises BadQuery."""
        return chosen(rows, {"page": "1", "page_size": PAGE_SIZE} | dict(self.query))
