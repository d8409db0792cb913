"""The table of filters of queues (`core.queues.admission`), by the argument that asks for one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from escrowmq.wire.amqp10.filters import FILTER, admission
from escrowmq.wire.amqp10.subscriptions import NO_LOCAL, of_others

if TYPE_CHECKING:
    from escrowmq.core.queues.admission import MessageFilter

ADMISSIONS: Final[Mapping[str, Callable[[object], MessageFilter]]] = MappingProxyType(
    {FILTER: admission, NO_LOCAL: of_others}
)
OF_PUBLISHERS: Final = frozenset({NO_LOCAL})
"""The arguments whose filters depend on who published a message, which is not always stored with it."""
