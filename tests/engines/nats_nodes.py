"""Real NATS servers with JetStream, which `make engines` compiles."""

from __future__ import annotations

import json
import sys
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.engines.nats_routes import NatsRoutes
from tests.engines.nodes import EngineNodes
from tests.ports import reserve_port

PROGRAM = Path(sys.prefix, "nats-server")


class NatsNodes(EngineNodes):
    """One server, or a cluster of three. `settings` are further lines on JetStream, `further` those of the server."""

    engine = "NATS"
    scheme = "nats"

    def __init__(
        self, folder: Path, count: int, host: str = "127.0.0.1", *, settings: str = "", further: str = ""
    ) -> None:
        super().__init__(folder, count, host)
        self._settings = settings
        self._further = further
        self._monitors = [reserve_port(self) for _ in range(count)]

    @classmethod
    def missing(cls) -> str | None:
        return None if PROGRAM.exists() else "needs make engines"

    def _command(self, node: int) -> list[str]:
        cluster = f"cluster {{ name: tests, {self._routes(node)} }}\n" if self.count > 1 else ""
        file = self.folder / f"{node}.conf"
        file.write_text(
            f'server_name: "n{node}"\nlisten: "{self.host}:{self.ports[node]}"\n'
            f'http: "127.0.0.1:{self._monitors[node]}"\n'
            f'jetstream {{ store_dir: "{self.folder / str(node)}", max_mem: 64MB, max_file: 20GB\n{self._settings} }}\n'
            f"{cluster}{self._further}"
        )
        return [str(PROGRAM), "-c", str(file)]

    def ready(self) -> bool:
        return all(self._ask(node, "healthz").get("status") == "ok" for node in range(self.count)) and (
            self.count == 1 or bool(self._ask(0, "jsz").get("meta_cluster", {}).get("leader"))
        )

    def leader(self, name: str) -> int:
        for node in range(self.count):
            if self.running(node):
                accounts = self._ask(node, "jsz?accounts=true&streams=true").get("account_details", [])
                for stream in (stream for account in accounts for stream in account.get("stream_detail", [])):
                    if stream["name"] == name and stream.get("cluster", {}).get("leader"):
                        return int(stream["cluster"]["leader"][1:])
        return 0

    def _routes(self, node: int) -> str:
        """Return the settings of the address for other servers, and of theirs."""
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in self.peer_ports)
        return f'listen: "127.0.0.1:{self.peer_ports[node]}", routes: [{routes}]'

    def _ask(self, node: int, path: str) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._monitors[node]}/{path}", timeout=2) as answer:
                found: dict[str, Any] = json.load(answer)
        except OSError:
            return {}
        return found


class SeparableNatsNodes(NatsNodes):
    """A cluster of three servers, of which one can be cut off from the other two, while clients reach all of them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, 3)
        self.routes = NatsRoutes(self.peer_ports)

    def _routes(self, node: int) -> str:
        others = (self.routes.port(node, other) for other in range(self.count) if other != node)
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in others)
        # The servers tell each other an address at which nobody is, so that they use these routes only.
        return f'listen: "127.0.0.1:{self.peer_ports[node]}", advertise: "127.0.0.1:1", routes: [{routes}]'

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, traceback)
        self.routes.close()
