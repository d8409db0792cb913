"""Three brokers for rounds of faults, each with a clock that can be set, and with a network if there may be one."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.interop.rocketmq.brokers import RocketmqPorts
from tests.replica_kill import clock, network
from tests.replica_kill.halves import configured
from tests.replicas import ReplicaBroker, ReplicaBrokers

NODES: Final = 3
DISK_BYTES: Final = 768 << 20
"""The size of the disk of the node that has one of its own."""
_CONFIG: Final = "[security]\nguest_loopback_only = false\n"


class Node(ReplicaBroker):
    """A broker, perhaps in a network namespace."""

    def __init__(self, folder: Path, name: str, url: str, prefix: Sequence[str], host: str) -> None:
        self.rocketmq = RocketmqPorts()
        config = folder / "broker.toml"
        config.write_text(configured(self.rocketmq, host) + _CONFIG, encoding="utf-8")
        super().__init__(folder, name, url, "--config", str(config))
        self.host = host
        self.clock: clock.Clock | None = None
        self._prefix = prefix

    @property
    def command(self) -> list[str]:
        return [*self._prefix, *super().command]


class Nodes(ReplicaBrokers):
    """Three of them. With a network, the first one has a small disk of its own."""

    def __init__(self, folder: Path, url: str, net: network.Network | None) -> None:
        super().__init__(folder, url, count=0)
        self.placed: list[Node] = []
        self.disk = folder / "n0" if net is not None else None
        library = None if clock.why_not() else clock.compiled(folder)
        for number in range(NODES):
            own = folder / f"n{number}"
            own.mkdir(parents=True, exist_ok=True)
            if own == self.disk:
                subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "disk", str(own)], check=True)
            prefix, host = ([], "127.0.0.1") if net is None else (net.prefix(number), net.host(number))
            node = Node(own, own.name, url, prefix, host)
            if library is not None:
                node.clock = clock.Clock(library, folder / f"{own.name}.clock")
                node.environment.update(node.clock.environment)
            self.placed.append(node)
        self.nodes = list(self.placed)

    def keep_disk(self) -> None:
        """Copy the files of the first node, whose disk ends together with this process."""
        if self.disk is not None:
            kept = self.disk.with_name("n0-kept")
            shutil.copytree(self.disk, kept, ignore=shutil.ignore_patterns("ballast", "*.sock"), dirs_exist_ok=True)

    def drop_disk(self) -> None:
        """End the disk of the first node, so that its folder can be deleted."""
        if self.disk is not None:
            subprocess.run(["umount", "--lazy", str(self.disk)], check=True)

    @contextlib.contextmanager
    def full_disk(self) -> Iterator[None]:
        """Leave no room on the disk of the first node."""
        assert self.disk is not None
        ballast = self.disk / "ballast"
        with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(1 << 16)):
                pass
        try:
            yield
        finally:
            ballast.unlink()
