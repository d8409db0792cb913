"""The errors of engines. That an engine cannot be reached is an OSError."""

from __future__ import annotations

from collections.abc import Sequence

from escrowmq.replica.engines.settings import WrongSetting
from escrowmq.replica.errors import ReplicaError


class EngineMissing(ReplicaError):  # noqa: N818 - named after the event
    """The library for the engine is not installed."""

    def __init__(self, engine: str, extra: str) -> None:
        super().__init__(f"replication on {engine} needs a library: pip install 'escrowmq[{extra}]'")


class SettingsRefused(ReplicaError):  # noqa: N818 - named after the event
    """The topic or stream has settings with which confirmed messages could be lost."""

    def __init__(self, wrong: Sequence[WrongSetting]) -> None:
        super().__init__("; ".join(map(str, wrong)))
        self.wrong = tuple(wrong)
