"""What nodes of Debian's `rabbitmq-server` need of Erlang: a port mapper of their own, and where their files are."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import IO, Any, NamedTuple

RABBITMQ_BIN = Path("/usr/lib/rabbitmq/bin")


class ErlangNode(NamedTuple):
    """A node, and the ports by which others find it. `home` has the cookie, which the nodes of a cluster share."""

    name: str
    epmd_port: int
    distribution_port: int
    home: Path

    def environment(self, folder: Path) -> dict[str, str]:
        """Return the environment of the node whose configuration and data are in `folder`."""
        return {
            **{name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ},
            "HOME": str(self.home),
            "ERL_EPMD_PORT": str(self.epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": self.name,
            "RABBITMQ_DIST_PORT": str(self.distribution_port),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "no-env.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_MNESIA_DIR": str(folder / "mnesia" / "node"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
        }


def start_epmd(port: int, log: IO[Any]) -> subprocess.Popen[bytes]:
    """Start a port mapper in the foreground."""
    return subprocess.Popen(
        ["epmd", "-port", str(port), "-address", "127.0.0.1"],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
