"""Share connections to brokers between the tasks of a process. Connections are opened on first use.

Spark forks its workers and reuses them for later tasks. A connection belongs to the process that opened it.
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
    Error,
    NotFound,
    OperationalError,
    RolledBack,
    Timeout,
)
from escrowmq.client.connection import connect_any
from escrowmq.client.escrow import Escrow
from escrowmq.client.reads import STANDBY
from escrowmq.spark.endpoint import Endpoint
from escrowmq.spark.errors import BrokerUnavailableError, EscrowSparkError, OptionError

_open: Final[dict[tuple[int, str, Endpoint], Escrow]] = {}
_CLOSE_SECONDS: Final = 0.5
_PASSING: Final = frozenset({0, 320, 506, 541})
"""How a connection can end without a reason that ends the next one, too: lost (0), or by the reply codes
connection-forced, resource-error and internal-error.
"""


def escrow(endpoint: Endpoint, role: str, reads: str = "") -> Escrow:
    """Return this process's connection to a broker, opened if necessary.

    Args:
        endpoint: the source of the broker's URL.
        role: the purpose; each role has a separate connection.
        reads: how a standby can serve connections of this role; see `Endpoint.parameters`.

    Raises:
        BrokerUnavailableError: the broker does not answer, or refuses the login.
        OptionError: the URL is missing or invalid.
    """
    key = os.getpid(), role, endpoint
    found = _open.get(key)
    if found is not None:
        with contextlib.suppress(Error):
            found.connection.poll()  # detects that the broker has closed the connection
            if found.connection.is_open:
                return found
        del _open[key]
    for stale in [known for known in _open if known[0] != key[0]]:
        del _open[stale]  # belongs to the process from which this one was forked
    with explained(endpoint):
        found = Escrow(connect_any(endpoint.parameters(f"spark {role} {key[0]}", reads)))
    _open[key] = found
    return found


def close(endpoint: Endpoint, role: str) -> None:
    """Close the connection that `escrow` has opened, if any."""
    found = _open.pop((os.getpid(), role, endpoint), None)
    if found is not None:
        found.connection.close()


def close_standby(endpoint: Endpoint, role: str) -> None:
    """Close the connection that `escrow` has opened if it is to a standby, where it sees nothing newer than itself."""
    found = _open.get((os.getpid(), role, endpoint))
    if found is not None and found.connection.server_properties.get(STANDBY):
        close(endpoint, role)


def drop(endpoint: Endpoint, role: str) -> bool:
    """Close the connection that `escrow` has opened, if any, without waiting for a broker that may be gone.

    Returns whether the broker was blocking its publishes, for want of memory or disk.
    """
    found = _open.pop((os.getpid(), role, endpoint), None)
    if found is None:
        return False
    with contextlib.suppress(Error):
        found.connection.close(timeout=_CLOSE_SECONDS)
    return found.connection.blocked is not None


@contextlib.contextmanager
def explained(endpoint: Endpoint) -> Iterator[None]:
    """Translate the client's errors to ours, without the chain of causes.

    Raises:
        OptionError: the broker does not know the queue or exchange, or denies access to it.
        BrokerUnavailableError: the broker does not answer, or refuses the login.
        EscrowSparkError: the broker has rolled back a transaction or refused a request.
    """
    try:
        yield
    except EscrowSparkError:
        raise
    except AuthenticationError as error:
        raise BrokerUnavailableError(f"the broker refuses the login ({endpoint}): {error}") from None
    except NotFound as error:
        raise OptionError(
            f"{error.code} {error.text} ({_address(endpoint)}); check the name, and that it has been declared"
        ) from None
    except AccessRefused as error:
        raise OptionError(f"{error.code} {error.text} ({_address(endpoint)})") from None
    except RolledBack as error:
        why = "it exceeded option txn.timeout" if error.timed_out else "a target queue is full, or was deleted"
        raise EscrowSparkError(f"the broker rolled back the transaction because {why}: {error}") from None
    except ChannelClosed as error:  # the broker refused the request, but is available
        raise EscrowSparkError(f"{error.code} {error.text} ({_address(endpoint)})") from None
    except Closed as error:
        where = "" if error.where else f"{_address(endpoint)}: "
        raise BrokerUnavailableError(f"{where}{error}", passing=error.code in _PASSING) from None
    except Timeout as error:
        raise BrokerUnavailableError(f"{error} (address from {endpoint})", passing=True) from None
    except OperationalError as error:
        raise BrokerUnavailableError(
            f"{_address(endpoint)}: {error}; check that a broker is running there (address from {endpoint})",
            passing=True,
        ) from None
    except Error as error:
        raise EscrowSparkError(f"{_address(endpoint)}: {error}") from None


def _address(endpoint: Endpoint) -> str:
    try:
        return endpoint.address()
    except OptionError:
        return str(endpoint)
