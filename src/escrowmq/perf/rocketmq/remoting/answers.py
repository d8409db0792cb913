"""The frames that a broker sends: responses are told apart by their numbers, requests are the broker's own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple

from escrowmq.perf.errors import PerfError
from escrowmq.perf.peer import RECEIVE_SIZE

CHECK_TRANSACTION: Final = 39
_HEAD: Final = 8
_OPAQUE: Final = re.compile(rb'"opaque":(\d+)')


class RemotingAnswer(NamedTuple):
    """A response to one of our requests, or a request of the broker's own (`code`, `is_response` False)."""

    opaque: int
    code: int
    is_response: bool
    header: bytes
    body: bytes

    @property
    def fields(self) -> dict[str, str]:
        """The fields of the header."""
        found: dict[str, str] = json.loads(self.header).get("extFields") or {}
        return found

    def value(self, name: str) -> str:
        """Return one field, which has no escaped characters. The others are not decoded."""
        found = _value(name).search(self.header)
        if found is None:
            raise PerfError(f"an answer lacks the field {name}")
        return found[1].decode()

    @property
    def remark(self) -> str:
        """The reason of a refusal."""
        return str(json.loads(self.header).get("remark") or "no reason given")


@lru_cache(16)
def _value(name: str) -> re.Pattern[bytes]:
    return re.compile(rb'"%b":"([^"\\]*)"' % name.encode())


def answers(data: bytearray, end: int, used: list[int]) -> Iterator[RemotingAnswer]:
    """Yield the complete frames in the first `end` bytes of `data`. `used[0]` is where the last one ended."""
    at = 0
    while end - at >= _HEAD:
        size = int.from_bytes(data[at : at + 4], "big") + 4
        if not _HEAD <= size <= RECEIVE_SIZE or data[at + 4]:
            raise PerfError("the broker sent something that is not classic remoting with headers in JSON")
        if size > end - at:
            return
        body = at + _HEAD + int.from_bytes(data[at + 5 : at + 8], "big")
        header = bytes(data[at + _HEAD : body])
        found = _OPAQUE.search(header)
        if found is not None and b'"code":0,' in header and b'"flag":1,' in header:
            answer = RemotingAnswer(int(found[1]), 0, True, header, bytes(data[body : at + size]))
        else:
            answer = _slowly(header, bytes(data[body : at + size]))
        at += size
        used[0] = at
        yield answer


def _slowly(header: bytes, body: bytes) -> RemotingAnswer:
    try:
        found: dict[str, Any] = json.loads(header)
        return RemotingAnswer(int(found["opaque"]), int(found["code"]), bool(found["flag"] & 1), header, body)
    except (ValueError, KeyError, TypeError):
        raise PerfError("the broker sent a header that is not one of classic remoting") from None
