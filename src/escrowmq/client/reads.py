"""The client property with which a connection says that it only reads streams, so that a standby can serve it."""

from __future__ import annotations

from typing import Final

PROPERTY: Final = "escrowmq.reads"
PLAN: Final = "plan"
"""Its value if the client wants to know which messages there are: all that were confirmed before it has connected."""
TASK: Final = "task"
"""Its value if the client reads messages that another connection has found."""
STANDBY: Final = "standby"
"""The server property of a standby. What such a connection sees does not change."""
