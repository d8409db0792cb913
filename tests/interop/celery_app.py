"""The tasks of the worker in test_celery.py. ESCROWMQ_TEST_URL and ESCROWMQ_TEST_QUEUE name broker and queue."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery
from kombu import Queue

_QUEUE = os.environ.get("ESCROWMQ_TEST_QUEUE", "celery")

app = Celery("interop", broker=os.environ.get("ESCROWMQ_TEST_URL"), backend="rpc://")
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_default_queue=_QUEUE,
    task_queues=[Queue(_QUEUE, max_priority=5)],
    task_default_priority=1,
    worker_prefetch_multiplier=4,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_transport_options={"confirm_publish": True},
    broker_heartbeat=2,
    worker_cancel_long_running_tasks_on_connection_loss=False,
    result_persistent=True,
)
if os.environ.get("ESCROWMQ_TEST_QUEUE_TYPE") == "quorum":
    # For quorum queues, Celery delays tasks in the broker, with a cascade of 28 queues that have TTLs.
    app.conf.update(
        task_queues=None,
        task_default_queue_type="quorum",
        task_default_exchange_type="topic",
        worker_detect_quorum_queues=True,
    )


@app.task
def add(x: int, y: int) -> int:
    return x + y


@app.task
def note(path: str, line: str) -> None:
    """Append a line to a file that the test reads."""
    with open(path, "a", encoding="utf-8") as file:  # noqa: PTH123
        file.write(f"{line}\n")


@app.task(bind=True, max_retries=3)
def flaky(self: Any) -> int:
    """Succeed at the third attempt."""
    if self.request.retries < 2:
        raise self.retry(countdown=0.05)
    retries: int = self.request.retries
    return retries


@app.task
def fail() -> None:
    raise ValueError("as asked")
