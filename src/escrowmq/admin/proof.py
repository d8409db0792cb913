"""Operations whose answers people and programs act on wait until the broker has proved that it still leads (REPL-3).

A deposed leader that does not know it yet would say from memory that no branch is in doubt, for example, and somebody
would forget a decision. Lists that only watch the broker do not wait, since they must work without the replicated log.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import wraps
from typing import Any, Final

from escrowmq.admin.operation import Operation
from escrowmq.admin.ports import BrokerProcess

PROVEN: Final = frozenset({"tx", "half", "progress", "hold", "link", "group", "message", "delayed"})
"""The kinds of objects, which begin the names of operations. `tx.list` is one of them."""
PROVEN_BESIDE: Final = frozenset({"definitions.export", "journal.synced", "queue.show"})


def proven(operations: Mapping[str, Operation], process: BrokerProcess) -> dict[str, Operation]:
    """Return the operations, of which some first wait for a proof."""
    return {name: _after_proof(each, process) if _is_proven(name) else each for name, each in operations.items()}


def _is_proven(name: str) -> bool:
    return name.partition(".")[0] in PROVEN or name in PROVEN_BESIDE


def _after_proof(operation: Operation, process: BrokerProcess) -> Operation:
    @wraps(operation)
    async def run(**arguments: Any) -> Any:
        await process.prove()
        return await operation(**arguments)

    return run
