"""A listener that reports the progress of queries that read from EscrowMQ: to a log, and to Prometheus."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

from escrowmq.client import Error
from escrowmq.client.escrow import Escrow
from escrowmq.spark.endpoint import Endpoint
from escrowmq.spark.errors import EscrowSparkError
from escrowmq.spark.identity import FORMAT_ID
from escrowmq.spark.pool import close, escrow, explained
from escrowmq.spark.progress import QueryProgress, exposition, parse

ROLE: Final = "listener"
MOST_FAILED: Final = 100
"""How many failed queries are remembered."""
_log: Final = logging.getLogger(__name__)


class ProgressListener(StreamingQueryListener):
    """Reports each micro-batch.

    Args:
        log: where to write a line for each micro-batch; by default, the logger of this module, at level INFO.
        endpoint: the broker to ask for held messages and undecided branches; None to ask none.
    """

    def __init__(self, log: logging.Logger | None = None, endpoint: Endpoint | None = None) -> None:
        self._to = log or _log
        self._endpoint = endpoint
        self._server: ThreadingHTTPServer | None = None
        self.port = 0
        self._lock = threading.Lock()
        self.latest: dict[str, QueryProgress] = {}

    def metrics(self) -> str:
        """Return the last progress of the queries that run or have failed, in Prometheus's text format."""
        with self._lock:
            return exposition(self.latest.values())

    def serve(self, host: str, port: int) -> None:
        """Serve `metrics` at `/metrics`, in a thread. If `port` is 0, it is a free one; see the attribute `port`."""
        listener = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = self.path.partition("?")[0] == "/metrics"
                body = listener.metrics().encode() if found else b"see /metrics\n"
                self.send_response(200 if found else 404)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Log nothing: a request every few seconds is no event."""

        self._server = ThreadingHTTPServer((host, port), Handler)
        threading.Thread(target=self._server.serve_forever, name="escrowmq metrics", daemon=True).start()
        self.port = self._server.server_port

    def stop(self) -> None:
        """End the server, and close the connection to the broker."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        if self._endpoint is not None:
            close(self._endpoint, ROLE)

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Do nothing: the first progress follows soon."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Report a micro-batch."""
        found = parse(event.progress)
        if found is None:
            return
        found = self._completed(found)
        with self._lock:
            # A query that was started anew with another checkpoint has another id, and perhaps the same name.
            self._forget([query for query, one in self.latest.items() if not one.up and one.name == found.name])
            self.latest[found.query] = found
        self._to.info("%s", found)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Do nothing: there is nothing new."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Forget the query, or, if it has failed, keep its last progress until it runs again, and report why."""
        with self._lock:
            found = self.latest.pop(str(event.id), None)
            if found is not None and event.exception:
                self.latest[found.query] = replace(found, up=False)
                failed = [query for query, one in self.latest.items() if not one.up]
                self._forget(failed[:-MOST_FAILED])
        if found is not None and event.exception:
            causes = [line for line in event.exception.splitlines() if line.startswith("escrowmq.spark.errors")]
            self._to.error("query %s has failed: %s", found.name, (causes or event.exception.splitlines())[-1])

    def _forget(self, queries: list[str]) -> None:
        for query in queries:
            del self.latest[query]

    def _completed(self, progress: QueryProgress) -> QueryProgress:
        if self._endpoint is None:
            return progress
        try:
            with explained(self._endpoint):
                broker = escrow(self._endpoint, ROLE)
                held = tuple(
                    sum(_held(broker, queue, source.group) for queue in source.queues.keys() - source.streams)
                    for source in progress.sources
                )
                undecided = sum(xid.format_id == FORMAT_ID for xid in broker.connection.tpc_recover())
        except (EscrowSparkError, Error) as error:
            return replace(progress, fault=str(error))
        return replace(progress, held=held, undecided=undecided)


def _held(broker: Escrow, queue: str, group: str) -> int:
    state = broker.hold(queue, group)
    return state.end - state.first
