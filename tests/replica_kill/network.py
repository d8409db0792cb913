"""Network namespaces for brokers, each with one link to the namespace of the engine and the clients.

The process itself must run in a namespace of its own (`enter`), so that nothing outside is touched. In it, the engine
listens on an address of its own. A broker reaches that address from a second address, so packets between broker and
engine can be dropped in one direction while clients reach the broker.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Final, NoReturn, Self

ENGINE: Final = "10.78.0.1"
_ENTERED: Final = "ESCROWMQ_TESTS_NAMESPACE"


def why_not() -> str:
    """Return why namespaces cannot be made here; empty if they can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "network namespaces and mounts need root on Linux"
    missing = [tool for tool in ("unshare", "nsenter", "ip", "iptables", "mount") if shutil.which(tool) is None]
    if missing:
        return f"{missing[0]} is not installed"
    done = subprocess.run(
        ["unshare", "--net", "--mount", "iptables", "-A", "OUTPUT", "-d", ENGINE, "-j", "DROP"],
        capture_output=True,
        text=True,
        check=False,
    )
    return f"namespaces are not permitted: {done.stderr.strip()}" if done.returncode else ""


def entered() -> bool:
    """Return whether this process is in namespaces that it made."""
    return _ENTERED in os.environ


def enter(command: Sequence[str]) -> NoReturn:
    """Replace this process by the same one in network and mount namespaces of its own."""
    os.environ[_ENTERED] = "1"
    os.execvp("unshare", ["unshare", "--net", "--mount", *command])


class Network:
    """The namespaces of some brokers."""

    def __init__(self, count: int) -> None:
        assert entered(), "the namespace is not one of this test"
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "address", "add", f"{ENGINE}/32", "dev", "lo")
        self._holders = [self._make(number) for number in range(count)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for holder in self._holders:
            holder.kill()
            holder.wait()

    @staticmethod
    def host(number: int) -> str:
        """Return the address of a broker for its clients."""
        return f"10.77.{number}.2"

    def prefix(self, number: int) -> list[str]:
        """Return what runs a command in a broker's namespace, with the same process id."""
        return ["nsenter", "--net", "--target", str(self._holders[number].pid), "--"]

    @contextlib.contextmanager
    def cut(self, number: int, *, outgoing: bool) -> Iterator[None]:
        """Drop the packets that a broker sends to the engine, or those that it gets from there."""
        inside = self.prefix(number) if outgoing else []
        rule = ["OUTPUT", "-d", ENGINE if outgoing else _second(number), "-j", "DROP"]
        _run(*inside, "iptables", "-A", *rule)
        try:
            yield
        finally:
            _run(*inside, "iptables", "-D", *rule)

    def _make(self, number: int) -> subprocess.Popen[bytes]:
        holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo made; exec sleep 1000000"], stdout=subprocess.PIPE
        )
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"made\n"
        holder.stdout.close()
        inside = ["nsenter", "--net", "--target", str(holder.pid), "--"]
        outer, first, second = f"n{number}", f"10.77.{number}.1", self.host(number)
        _run("ip", "link", "add", outer, "type", "veth", "peer", "name", "out", "netns", str(holder.pid))
        _run("ip", "address", "add", f"{first}/30", "dev", outer)
        _run("ip", "link", "set", outer, "up")
        _run(*inside, "ip", "link", "set", "lo", "up")
        _run(*inside, "ip", "address", "add", f"{second}/30", "dev", "out")
        _run(*inside, "ip", "address", "add", f"{_second(number)}/32", "dev", "out")
        _run(*inside, "ip", "link", "set", "out", "up")
        _run(*inside, "ip", "route", "add", f"{ENGINE}/32", "via", first, "src", _second(number))
        _run("ip", "route", "add", f"{_second(number)}/32", "via", second)
        return holder


def _second(number: int) -> str:
    return f"10.79.{number}.2"


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"


def _passes(number: int, net: Network) -> str:
    """Return in which directions packets pass between a broker and the engine."""
    found = []
    for word, outgoing in (("out", True), ("in", False)):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
            receiver.settimeout(1)
            receiver.bind((ENGINE, 0))
            target = receiver.getsockname() if outgoing else None
            if target is not None:
                program = f"import socket; socket.socket(2, 2).sendto(b'x', ('{target[0]}', {target[1]}))"
                subprocess.run([*net.prefix(number), sys.executable, "-c", program], check=False, capture_output=True)
                with contextlib.suppress(TimeoutError):
                    receiver.recv(1)
                    found.append(word)
                continue
            program = (
                f"import socket; s = socket.socket(2, 2); s.bind(('{_second(number)}', 0)); s.settimeout(1); "
                "print(s.getsockname()[1], flush=True); print(s.recv(1).decode())"
            )
            with subprocess.Popen(
                [*net.prefix(number), sys.executable, "-c", program],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            ) as process:
                assert process.stdout is not None
                port = int(process.stdout.readline())
                with contextlib.suppress(PermissionError):
                    receiver.sendto(b"x", (_second(number), port))
                if process.stdout.readline():
                    found.append(word)
    return " and ".join(found)


def main() -> None:
    """Show in which directions packets pass while the network of a broker is cut. Enters a namespace."""
    if not entered():
        enter([sys.executable, "-m", "tests.replica_kill.network"])
    with Network(1) as net:
        print("whole:", _passes(0, net), flush=True)
        with net.cut(0, outgoing=True):
            print("outgoing cut:", _passes(0, net), flush=True)
        with net.cut(0, outgoing=False):
            print("incoming cut:", _passes(0, net), flush=True)
        print("whole:", _passes(0, net), flush=True)


if __name__ == "__main__":
    main()
