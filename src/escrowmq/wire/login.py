"""Logging in: mechanisms on offer, the server's verdict, the virtual host. All protocols share it.

An endpoint has one `Login`. It offers `mechanisms`, passes the client's first response to `authenticate`, and calls
`enter` for the virtual host that the client names. When the protocol's opening sequence is complete, the endpoint calls
`admit` to tell the server. The server closes a connection that is not admitted in time, so endpoints need no timer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from escrowmq.core.queues.queue import Queue
from escrowmq.core.topology.vhost import VirtualHost
from escrowmq.wire.sasl import SaslError, parse

if TYPE_CHECKING:
    from escrowmq.wire.endpoint import Endpoint, Host, Peer, Verdict

EXTERNAL = "EXTERNAL"


class LoginFault(Exception):  # noqa: N818 - a fault of the client, which gets the text
    """A login that cannot be tried. The text names the fault and never contains the client's response."""


class Login:
    """The login of one connection."""

    __slots__ = ("_endpoint", "_host", "_vhost", "mechanisms", "user")

    def __init__(self, host: Host, endpoint: Endpoint, peer: Peer) -> None:
        self._host = host
        self._endpoint = endpoint
        self._vhost: VirtualHost[Queue] | None = None
        # EXTERNAL is offered only with a client certificate: some clients choose it whenever it is on offer.
        certified = peer.certificate_user is not None
        self.mechanisms = tuple(name for name in host.mechanisms if certified or name != EXTERNAL)
        self.user = ""
        """The authenticated user; empty before the verdict and after a refusal."""

    @property
    def vhost_name(self) -> str:
        """The virtual host that the client entered; empty before that."""
        return self._vhost.name if self._vhost is not None else ""

    def authenticate(
        self,
        mechanism: str,
        response: bytes,
        done: Callable[[bool], None],
        decode_fields: Callable[[bytes], Mapping[str, object]] | None = None,
    ) -> None:
        """Let the server check the initial response of `mechanism`.

        `done` is called with True if the server accepts the login (`user` is set then), and with False if the server
        refuses it, either at once or in a later turn. `decode_fields` is the same as in `sasl.parse`.

        Raises:     LoginFault: the mechanism is not on offer, or the response is malformed.
        """
        if mechanism not in self.mechanisms:
            raise LoginFault(f"unknown mechanism '{mechanism}'; offered are {', '.join(self.mechanisms)}")
        try:
            credentials = parse(mechanism, response, decode_fields)
        except SaslError as error:
            raise LoginFault(str(error)) from None

        def judged(verdict: Verdict) -> None:
            self.user = verdict.user or ""
            done(verdict.user is not None)

        self._host.authenticate(self._endpoint, credentials, judged)

    def enter(self, name: str) -> VirtualHost[Queue]:
        """Enter the virtual host `name`. Raises BrokerError (NOT_ALLOWED) if the user must not use it, or if a limit on
        connections is reached.
        """
        broker = self._host.broker
        broker.access.check_vhost(self.user, name)
        self._host.check_room(self._endpoint, self.user, name)
        self._vhost = broker.directory.vhost(name)
        return self._vhost

    def admit(self) -> None:
        """Tell the server that the client is logged in and has entered its virtual host."""
        self._host.admitted(self._endpoint, self.user, self.vhost_name)
