"""Connections to brokers, one for each process and broker; opened when they are needed, never at import.

Spark forks its workers, and uses them again for other tasks: a connection belongs to the process that has opened it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Final

from escrowmq.client import (
    AccessRefused,
    AuthenticationError,
    ChannelClosed,
    Closed,
    Connection,
    Error,
    NotFound,
    OperationalError,
    RolledBack,
    Timeout,
)
from escrowmq.client.escrow import Escrow
from escrowmq.spark.endpoint import Endpoint
from escrowmq.spark.errors import BrokerUnavailableError, EscrowSparkError, OptionError

_open: Final[dict[tuple[int, str, Endpoint], Escrow]] = {}


def escrow(endpoint: Endpoint, role: str) -> Escrow:
    """What the process has for this broker and this purpose. Raises BrokerUnavailableError, OptionError."""
    key = os.getpid(), role, endpoint
    found = _open.get(key)
    if found is not None:
        with contextlib.suppress(Error):
            found.connection.poll()  # notices that the broker has gone meanwhile
            if found.connection.is_open:
                return found
        del _open[key]
    for stale in [known for known in _open if known[0] != key[0]]:
        del _open[stale]  # of the process that this one was forked from
    with explained(endpoint):
        found = Escrow(Connection(endpoint.parameters(f"spark {role} {key[0]}")))
    _open[key] = found
    return found


def close(endpoint: Endpoint, role: str) -> None:
    """Close what `escrow` has opened."""
    found = _open.pop((os.getpid(), role, endpoint), None)
    if found is not None:
        found.connection.close()


@contextlib.contextmanager
def explained(endpoint: Endpoint) -> Iterator[None]:
    """What the client raises, as one line of ours without its chain of causes."""
    try:
        yield
    except EscrowSparkError:
        raise
    except AuthenticationError as error:
        raise BrokerUnavailableError(f"the broker refuses the login ({endpoint}): {error}") from None
    except NotFound as error:
        raise OptionError(
            f"{error.code} {error.text} ({_address(endpoint)}); is its name right, and was it declared?"
        ) from None
    except AccessRefused as error:
        raise OptionError(f"{error.code} {error.text} ({_address(endpoint)})") from None
    except RolledBack as error:
        why = "it took longer than option txn.timeout" if error.timed_out else "a queue it writes to is full, or gone"
        raise EscrowSparkError(f"the broker has rolled back what was written, {why}: {error}") from None
    except ChannelClosed as error:  # a refusal, by a broker that is well
        raise EscrowSparkError(f"{error.code} {error.text} ({_address(endpoint)})") from None
    except Closed as error:
        where = "" if error.where else f"{_address(endpoint)}: "
        raise BrokerUnavailableError(f"{where}{error}") from None
    except Timeout as error:
        raise BrokerUnavailableError(f"{error} ({endpoint} says where)") from None
    except OperationalError as error:
        raise BrokerUnavailableError(
            f"{_address(endpoint)}: {error}; is a broker there? ({endpoint} says so)"
        ) from None
    except Error as error:
        raise EscrowSparkError(f"{_address(endpoint)}: {error}") from None


def _address(endpoint: Endpoint) -> str:
    try:
        return endpoint.address()
    except OptionError:
        return str(endpoint)
