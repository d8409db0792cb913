"""`python -m tests.conformance.stories CLIENT PORT`: a Python client does what others do in `outcomesOfDeliveries`.

It sends two messages. The first one is released, modified as a failed delivery, and rejected. The second one is
accepted.
"""

from __future__ import annotations

import sys
from typing import Any


def proton(port: int) -> None:
    import proton
    import proton.utils

    connection: Any = proton.utils.BlockingConnection(f"amqp://guest:guest@127.0.0.1:{port}", allowed_mechs="PLAIN")
    sender = connection.create_sender("outcomes")
    for body in ("first", "second"):
        sender.send(proton.Message(body=body, durable=True))
    receiver = connection.create_receiver("outcomes", credit=1)
    for state in (
        proton.Delivery.RELEASED,
        proton.Delivery.MODIFIED,
        proton.Delivery.REJECTED,
        proton.Delivery.ACCEPTED,
    ):
        receiver.receive()
        receiver.fetcher.unsettled[0].local.failed = state == proton.Delivery.MODIFIED
        receiver.settle(state)
    connection.close()


def azure(port: int) -> None:
    from tests.interop import test_azure_pyamqp as client

    clients = client.Clients(port)
    sender, receiver = clients.sender("outcomes"), clients.receiver("outcomes", link_credit=1)
    for body in (b"first", b"second"):
        client.send(sender, body)
    for outcome in ("released", "modified", "rejected", "accepted"):
        frame, _ = client.receive(receiver)
        options = {"delivery_failed": True} if outcome == "modified" else {}
        client.settle(receiver, frame, outcome, await_outcome=True, outcome_timeout=20, **options)
    clients.close()


if __name__ == "__main__":
    {"proton": proton, "azure": azure}[sys.argv[1]](int(sys.argv[2]))
