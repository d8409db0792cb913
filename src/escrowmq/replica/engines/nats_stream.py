"""The stream of a log on NATS: creates it, checks its settings, trims it, and describes its replicas.

It speaks JetStream's API itself, since the settings that the client library knows are those of its version.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any, Final

import nats.errors
from nats.aio.client import Client

from escrowmq.replica.engines.address import EngineAddress
from escrowmq.replica.engines.port import EngineState
from escrowmq.replica.engines.settings import WrongSetting, at_least, exactly

LARGEST_ENTRY: Final = 1_000_000
_FIXED: Final[dict[str, object]] = {
    "retention": "limits",
    "storage": "file",
    "discard": "new",
    "max_age": 0,
    "max_bytes": -1,
    "max_msgs": -1,
    "max_msgs_per_subject": -1,
    "deny_delete": True,
    "allow_direct": True,
}
_UNSET: Final = ("mirror", "sources", "subject_transform", "republish", "sealed", "allow_rollup_hdrs", "allow_msg_ttl")
"""Settings that must be left out, empty or false."""
_PAUSE: Final = 0.1
_ANSWER_SECONDS: Final = 2.0
_SILENT_SECONDS: Final = 4.0
"""After such a time without an answer, another server is asked. One that is cut off from the others still accepts
clients, and shows them signs of life.
"""
_BEHIND_SECONDS: Final = 1.0
"""The same if the answers are old. A server that led the stream may give such answers as long as it is cut off."""
_STREAM_NOT_FOUND: Final = 10059
_NO_PEERS: Final = 10005
_NO_CLUSTER: Final = 10074


class StreamMissing(Exception):  # noqa: N818 - named after the event
    """There is no such stream."""


class NatsStream:
    """A stream with one subject. Its coroutines belong to the client's event loop."""

    def __init__(self, address: EngineAddress, client: Client, timeout: float) -> None:
        self.address = address
        self._client = client
        self._timeout = timeout
        self._where = f"the stream {address.name}"
        self.acknowledged = 0
        """The position behind the last append that was acknowledged here. Any thread may set it."""

    async def open(self) -> None:
        """Create the stream unless it exists, and wait until NATS knows it. Raises OSError."""
        try:
            await self._info()
        except StreamMissing:
            settings = {
                **_FIXED,
                "name": self.address.name,
                "subjects": [self.address.subject],
                "num_replicas": self.address.replicas,
            }
            answer = await self._create(settings)
            if "error" in answer:
                few = answer["error"].get("err_code") in (_NO_PEERS, _NO_CLUSTER)
                raise ConnectionError(
                    f"{self._where} with {self.address.replicas} replicas cannot be created on NATS at "
                    f"{self.address}: {answer['error'].get('description')}{self.address.too_few if few else ''}"
                ) from None
            await self._known()

    async def _known(self) -> None:
        """Wait for the stream. If several nodes ask for it at the same time, NATS may confirm it before it is there."""
        give_up = time.monotonic() + self._timeout
        while True:
            try:
                await self._info()
                return
            except StreamMissing:
                if time.monotonic() > give_up:
                    message = f"{self._where} was created on NATS at {self.address}, and is not there"
                    raise TimeoutError(message) from None
            await asyncio.sleep(_PAUSE)

    async def _create(self, settings: dict[str, object]) -> dict[str, Any]:
        """Ask for the stream, and wait for nodes that have just started and do not take replicas yet."""
        give_up = time.monotonic() + self._timeout
        while True:
            answer = await self._ask(f"STREAM.CREATE.{self.address.name}", settings)
            if answer.get("error", {}).get("err_code") != _NO_PEERS or time.monotonic() > give_up:
                return answer
            await asyncio.sleep(_PAUSE)

    async def check(self) -> list[WrongSetting]:
        """Return the settings that are wrong now. Raises OSError."""
        try:
            found = (await self._info())["config"]
        except StreamMissing:
            return [WrongSetting("NATS", "stream", "none", self.address.name)]
        wrong = at_least(self._where, "num_replicas", int(found.get("num_replicas", 1)), self.address.replicas)
        wrong += exactly(self._where, "subjects", found.get("subjects"), [self.address.subject])
        for name, needed in _FIXED.items():
            wrong += exactly(self._where, name, found.get(name, False if isinstance(needed, bool) else needed), needed)
        for name in _UNSET:
            if found.get(name):
                wrong.append(WrongSetting(self._where, name, json.dumps(found[name]), "none"))
        wrong += exactly(self._where, "persist_mode", found.get("persist_mode") or "default", "default")
        largest = int(found.get("max_msg_size", -1))
        wrong += at_least(self._where, "max_msg_size", largest, LARGEST_ENTRY, unlimited=True)
        return wrong + at_least("NATS", "max_payload", self._client.max_payload, LARGEST_ENTRY)

    async def ends(self) -> tuple[int, int]:
        """Return the positions of the oldest entry, and behind the newest. Raises OSError."""
        state = (await self._info())["state"]
        last = int(state["last_seq"])
        return min(max(int(state["first_seq"]) - 1, 0), last) if last else 0, last

    async def trim(self, before: int) -> None:
        """Delete the entries before a position. Raises OSError."""
        answer = await self._ask(f"STREAM.PURGE.{self.address.name}", {"seq": before + 1})
        if "error" in answer:
            raise ConnectionError(f"NATS at {self.address} cannot be trimmed: {answer['error'].get('description')}")

    async def state(self) -> EngineState:
        """Describe the replicas. Raises OSError."""
        info = await self._info()
        cluster = info.get("cluster") or {}
        followers = cluster.get("replicas") or []
        in_sync = 1 + sum(bool(each.get("current")) and not each.get("offline") for each in followers)
        leader = str(cluster.get("leader") or "")
        return EngineState("NATS", str(self.address), int(info["config"].get("num_replicas", 1)), in_sync, leader)

    async def _info(self) -> dict[str, Any]:
        """Describe the stream with everything that was acknowledged before, unless NATS has lost it. Raises OSError."""
        patience = NatsPatience(self._client, _BEHIND_SECONDS)
        give_up = time.monotonic() + self._timeout / 2
        while True:
            acknowledged = self.acknowledged
            info = await self._described()
            last = int(info["state"]["last_seq"])
            if last >= acknowledged:
                return info
            if time.monotonic() > give_up:
                self.acknowledged = last
                return info
            await patience.leave_in_time()
            await asyncio.sleep(_PAUSE)

    async def _described(self) -> dict[str, Any]:
        answer = await self._ask(f"STREAM.INFO.{self.address.name}", None)
        if "error" not in answer:
            return answer
        if answer["error"].get("err_code") == _STREAM_NOT_FOUND:
            raise StreamMissing(f"NATS at {self.address} does not have the stream any more")
        raise ConnectionError(f"NATS at {self.address} refuses {self._where}: {answer['error'].get('description')}")

    async def _ask(self, subject: str, request: object) -> dict[str, Any]:
        """Ask until there is an answer. The requests can be repeated. Raises TimeoutError."""
        data = b"" if request is None else json.dumps(request).encode()
        give_up = time.monotonic() + self._timeout
        patience = NatsPatience(self._client, _SILENT_SECONDS)
        while True:
            try:
                reply = await self._client.request(f"$JS.API.{subject}", data, timeout=_ANSWER_SECONDS)
                answer: dict[str, Any] = json.loads(reply.data)
                if answer.get("error", {}).get("code") != 503:
                    return answer
                reason = str(answer["error"].get("description"))
            except nats.errors.NoRespondersError:
                reason = "JetStream is not enabled (nats-server --jetstream), or has no leader"
            except (TimeoutError, nats.errors.Error, OSError) as error:
                reason = str(error) or "no answer"
            if time.monotonic() > give_up:
                raise TimeoutError(f"NATS at {self.address} did not answer in {self._timeout:g} s: {reason}")
            await patience.leave_in_time()
            await asyncio.sleep(_PAUSE)


class NatsPatience:
    """The time that each server has to answer a question well."""

    def __init__(self, client: Client, seconds: float) -> None:
        self._client = client
        self._seconds = seconds
        self._begin()

    def _begin(self) -> None:
        self._server = self._client.connected_url
        self._leave_at = time.monotonic() + self._seconds

    async def leave_in_time(self) -> None:
        """Connect to the next server if this one has had its time, unless the client did so for another question."""
        if self._client.connected_url != self._server:
            self._begin()
        elif time.monotonic() > self._leave_at:
            await self._client.force_reconnect()
            self._begin()
