"""The refusals of one connection in the log, each once: clients repeat a refused request for as long as they run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from escrowmq.core.conditions import Condition
from escrowmq.wire.endpoint import Verdict

if TYPE_CHECKING:
    from escrowmq.core.conditions import BrokerError
    from escrowmq.wire.endpoint import Endpoint, Host

MOST: Final = 20
"""Refused calls of one connection that are logged."""
NO_ROUTE: Final = "no-route"
"""The code in the log for a topic that does not exist yet, and that its first message creates."""
_LOGGED: Final = frozenset({Condition.ACCESS_REFUSED, Condition.NOT_ALLOWED, Condition.LIMIT_EXCEEDED})
_LONGEST_KEY: Final = 100
_LONGEST_NAME: Final = 127


class Refusals:
    """Logs the first refused login of a connection, and each reason for which calls are refused after the login."""

    __slots__ = ("_endpoint", "_host", "_login", "_reasons")

    def __init__(self, host: Host, endpoint: Endpoint) -> None:
        self._host = host
        self._endpoint = endpoint
        self._login = False
        self._reasons: set[str] = set()

    def login(self, access_key: str, reason: str) -> None:
        """Note that a client with this access key, which may be empty, was not let in."""
        if self._login:
            return
        self._login = True
        who = f"a client with access key {access_key[:_LONGEST_KEY]!r}" if access_key else "a client"
        self._host.login_judged(self._endpoint, who, Verdict(None, reason))

    def call(self, error: BrokerError) -> None:
        """Note that a call was refused. Only missing permissions and limits are logged."""
        if error.condition in _LOGGED:
            self._note(error.condition.value, error.text)

    def missing(self, topic: str, vhost: str, *, automatic: bool = False) -> None:
        """Note that a client asked for a topic that does not exist. With `automatic`, the client may create it next."""
        text = f"topic {topic[:_LONGEST_NAME]!r} does not exist in vhost '{vhost}'"
        if automatic:
            self._note(NO_ROUTE, f"{text}; the first message of a classic producer creates it")
        else:
            self._note(Condition.NOT_FOUND.value, f"{text}; create it by `escrowmq topic create`")

    def _note(self, code: str, text: str) -> None:
        if text not in self._reasons and len(self._reasons) < MOST:
            self._reasons.add(text)
            self._host.failed(self._endpoint, code, text)
