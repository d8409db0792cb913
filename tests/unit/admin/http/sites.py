"""The HTTP interface over a simulated broker, asked without sockets."""

from __future__ import annotations

import asyncio
import base64
import json
from contextlib import nullcontext, suppress
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from escrowmq.admin.http.app import HttpInterface
from escrowmq.admin.http.broker import BrokerRefused, BrokerUnavailable
from escrowmq.admin.http.standby import StandbyInterface
from escrowmq.admin.operation import Listing, NothingFound, OperationRefused
from escrowmq.admin.service import AdminService
from escrowmq.console.standby import StandbyConsole
from escrowmq.core.conditions import BrokerError
from tests.harness.server import SimServer
from tests.unit.admin.processes import FakeProcess
from tests.unit.admin.standings import standing
from tests.unit.wire.amqp091.clients import server


class Answer(NamedTuple):
    """The answer to a request."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class FigureProcess(FakeProcess):
    """A process with all the figures that metrics show."""

    def figures(self) -> dict[str, Any]:
        journal = dict.fromkeys(
            ("batches", "records", "bytes", "snapshots", "segments", "segments_deleted", "disk_bytes", "syncs"), 7
        )
        journal |= dict.fromkeys(("sync_us_total", "sync_us_median", "sync_us_p99"), 900)
        journal |= dict.fromkeys(("end_lsn", "synced_lsn", "snapshot_lsn"), 4096)
        return {
            "version": "1.2.3",
            "pid": 7,
            "data_dir": "/data",
            "listeners": ["amqp://127.0.0.1:5672"],
            "uptime_seconds": 5.5,
            "turns": 9,
            "clock_behind_seconds": 0.0,
            "connections": 2,
            "connections_accepted": 5,
            "alarms": ["disk"],
            "unavailable_queues": 0,
            "memory": {"resident_bytes": 1000, "limit_bytes": 2000},
            "disk": {"free_bytes": 3000, "limit_bytes": 4000},
            "journal": journal | {"unwritten_bytes": 11, "maintenance": "idle"},
        }

    def counters(self) -> dict[str, Any]:
        return {
            "host": "h",
            "identity": "0123",
            "blocked_publishers": 1,
            "publishers": 2,
            "open_descriptors": 30,
            "most_descriptors": 1024,
            "sync_us_total": 3_000_000,
            "sync_us_buckets": [0, 1, 2, 3],
        }


class LocalBroker:
    """Asks the operations of a broker in this process; like the real one, it passes everything through JSON."""

    def __init__(self, made: SimServer) -> None:
        self.process = FigureProcess(made)
        self._operations = AdminService(self.process).operations
        self.gone = False

    async def ask(self, command: str, **arguments: Any) -> Any:
        """See `RemoteBroker.ask`."""
        if self.gone:
            raise BrokerUnavailable("gone")
        try:
            result = await self._operations[command](**json.loads(json.dumps(arguments)))
        except (OperationRefused, BrokerError) as error:
            condition = error.condition.value if isinstance(error, BrokerError) else ""
            text = error.text if isinstance(error, BrokerError) else str(error)
            raise BrokerRefused(text, missing=isinstance(error, NothingFound), condition=condition) from error
        return json.loads(json.dumps(await result.rows() if isinstance(result, Listing) else result, default=str))


class HttpSite:
    """A broker, and its HTTP interface. The password of user `u` is `password of u`."""

    def __init__(self, made: SimServer | None = None, *, open_metrics: bool = False) -> None:
        self.server = made or server()
        self.broker = LocalBroker(self.server)
        self.app = HttpInterface(self.broker, open_metrics=open_metrics).app()
        self.server.broker.access.set_tags("guest", ("administrator",))
        self.client_leaves = False  # before its body is complete
        self.faults_are_raised = True  # and not only answered

    def get(self, target: str, user: str | None = "guest", *, password: str | None = None) -> Answer:
        """Ask as `user`, or without a login."""
        return self.request("GET", target, login(user, password))

    def post(self, target: str, body: object, user: str | None = "guest", kind: str = "application/json") -> Answer:
        """Send a JSON body as `user`, or without a login."""
        return self.request("POST", target, login(user) | {"content-type": kind}, json.dumps(body).encode())

    def put(self, target: str, body: object, user: str | None = "guest") -> Answer:
        """Send a JSON body, or none, as `user`."""
        return self.call("PUT", target, body, user)

    def delete(self, target: str, user: str | None = "guest", headers: dict[str, str] | None = None) -> Answer:
        """Delete as `user`."""
        return self.request("DELETE", target, login(user) | (headers or {}))

    def call(self, method: str, target: str, body: object, user: str | None = "guest") -> Answer:
        """Send a JSON body, or none, by any method as `user`."""
        content = b"" if body is None else json.dumps(body).encode()
        return self.request(method, target, login(user) | {"content-type": "application/json"}, content)

    def request(self, method: str, target: str, headers: dict[str, str] | None = None, body: bytes = b"") -> Answer:
        """Send a request."""
        return asyncio.run(self._request(method, target, headers or {}, body))

    async def _request(self, method: str, target: str, headers: dict[str, str], content: bytes) -> Answer:
        parts = urlsplit(target)
        sent: list[Any] = []

        async def receive() -> Any:
            if self.client_leaves:
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": content, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(parts.path),
            "raw_path": parts.path.encode(),
            "query_string": parts.query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
        }
        with nullcontext() if self.faults_are_raised else suppress(Exception):
            await self.app(scope, receive, send)
        body = b"".join(message.get("body", b"") for message in sent[1:])
        found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return Answer(sent[0]["status"], found, body)


class Standby:
    """A standby that answers what a real one does."""

    def __init__(self, **more: Any) -> None:
        """`more` has further values of its standing."""
        found = standing(role="standby", node="n2", **more)
        found["nodes"] = found["nodes"][::-1]
        self._answers = {"ping": "standby", "replica.status": found}

    async def ask(self, command: str, **arguments: Any) -> Any:
        """See `RemoteBroker.ask`."""
        assert not arguments
        return self._answers[command]


class StandbySite(HttpSite):
    """A standby, and its HTTP interface with the console."""

    def __init__(self, *, open_metrics: bool = False, **more: Any) -> None:
        super().__init__()
        node = Standby(**more)
        console = StandbyConsole(node, open_metrics=open_metrics)
        self.app = StandbyInterface(node, open_metrics=open_metrics).app(console.routes())


def login(user: str | None, password: str | None = None) -> dict[str, str]:
    """Return the header of a login; without a user, there is none."""
    if user is None:
        return {}
    secret = f"password of {user}" if password is None else password
    return {"authorization": "Basic " + base64.b64encode(f"{user}:{secret}".encode()).decode()}
