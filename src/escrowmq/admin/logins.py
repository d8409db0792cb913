"""The login of an operator over another interface than the admin socket."""

from __future__ import annotations

from collections.abc import Mapping

from escrowmq.admin.operation import Operation, Row
from escrowmq.admin.ports import BrokerProcess
from escrowmq.core.access.grant import Grant


class LoginAdmin:
    """The operations by name are in `operations`."""

    def __init__(self, process: BrokerProcess) -> None:
        self._process = process
        self.operations: Mapping[str, Operation] = {
            "user.login": self.log_in,
            "token.login": self.log_in_by_token,
        }

    async def log_in(self, address: str, user: str, password: str, port: int = 0) -> Row:
        """Check a password that came over HTTP from `address`, a numeric host, and `port` (0: unknown).

        Return the user with its tags; `user` is None, and `reason` says why, if it is refused. After wrong passwords
        the answer takes longer, as for clients of AMQP.
        """
        reason = await self._process.log_in(address, port, user, password)
        found = self._process.broker.access.users.get(user) if not reason else None
        if found is None:
            return {"user": None, "tags": [], "reason": reason}
        return {"user": found.name, "tags": list(found.tags), "reason": ""}

    async def log_in_by_token(self, address: str, token: str, port: int = 0) -> Row:
        """Check a token in the same way. Return its user, which the list of users need not have, with tags, scopes and
        the time at which it expires, in milliseconds since the epoch. The scopes are to be given as `scopes` with each
        operation that the user asks for.
        """
        found = await self._process.log_in_by_token(address, port, token)
        if not isinstance(found, Grant):
            return {"user": None, "tags": [], "scopes": [], "expires_ms": 0, "reason": found}
        scopes, expires_ms = list(found.scopes), found.expires_ms
        return {"user": found.user, "tags": list(found.tags), "scopes": scopes, "expires_ms": expires_ms, "reason": ""}
