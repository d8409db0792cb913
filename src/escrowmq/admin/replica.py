"""Operations on a node whose journal is on a replicated log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from escrowmq.admin.operation import Operation, OperationRefused
from escrowmq.admin.ports import BrokerProcess

SILENT: Final = "the replicated log does not answer, so no node can take over; try again when it answers"
NO_STANDBY: Final = "no standby has reported lately, so no node would take over; see `escrowmq replica status`"
CUT_OFF: Final = "cut off"
"""What a leader says of itself that accepts no clients."""
ALONE: Final = "this broker has its journal alone; see `escrowmq serve --replicate`"


def refusal_text(leader_url: str) -> str:
    """Return the line with which a standby refuses what only the leader does."""
    if leader_url:
        return f"this node is a standby; the leader is {leader_url}"
    return "this node is a standby, and knows of no leader"


def obstacle_to_hand_over(standing: Mapping[str, Any]) -> str:
    """Return why no other node would take over from a leader of this standing; nothing if one would."""
    if standing.get("silent"):
        return SILENT
    if not any(row["role"] == "standby" and not row["behind_seconds"] for row in standing["nodes"]):
        return NO_STANDBY
    return ""


class ReplicaAdmin:
    """The operations by name are in `operations`."""

    def __init__(self, process: BrokerProcess) -> None:
        self._process = process
        self.operations: Mapping[str, Operation] = {"replica.status": self.status, "replica.handover": self.hand_over}

    async def status(self) -> dict[str, Any]:
        """Return who leads, and how this node stands."""
        found = self._process.replication()
        if found is None:
            raise OperationRefused(ALONE)
        return found

    async def hand_over(self) -> None:
        """Let another node lead. This one disconnects its clients, and begins again as a standby.

        Raises OperationRefused while no other node could take over.
        """
        if obstacle := obstacle_to_hand_over(await self.status()):
            raise OperationRefused(obstacle)
        self._process.hand_over()
