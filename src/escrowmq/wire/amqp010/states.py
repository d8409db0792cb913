"""The states of a session that has not ended.

| state | meaning | leaves by |
|---|---|---|
| ATTACHED | commands are received and sent | `session.detach`, or a lost connection: DETACHED |
| DETACHED | no connection; what is sent is remembered | `session.attach`: RESUMING; the timeout: the end |
| RESUMING | attached again; commands are refused | `session.expected`: REPLAYING; as ATTACHED: DETACHED |
| REPLAYING | commands are received; the broker's are sent again | all sent: ATTACHED; as ATTACHED: DETACHED |

A session that may not be kept ends instead of being DETACHED.
"""

from __future__ import annotations

from enum import Enum


class SessionPhase(Enum):
    """See the description of the module."""

    ATTACHED = "attached"
    DETACHED = "detached"
    RESUMING = "resuming"
    REPLAYING = "replaying"
