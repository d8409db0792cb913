"""`python -m tests.conformance.record CLIENT` runs a scenario of a real client through a proxy, and records it.

The clients must be installed as for tests/interop. `--answers` plays all recordings, and writes the answers anew.
"""

from __future__ import annotations

import queue
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from string import ascii_uppercase

import click

from tests.broker import running_broker
from tests.conformance.recording import FOLDER, play
from tests.interop.java_clients import JAVA, jars
from tests.interop.node_clients import NODE
from tests.interop.test_go_amqp import PROGRAM

SCENARIO = "outcomesOfDeliveries"
STORIES = [sys.executable, "-m", "tests.conformance.stories"]
COMMANDS: dict[str, Callable[[int], list[str]]] = {
    "proton": lambda port: [*STORIES, "proton", str(port)],
    "azure": lambda port: [*STORIES, "azure", str(port)],
    "rhea": lambda port: ["node", str(NODE / "rhea.js"), SCENARIO, str(port), "outcomes"],
    "goamqp": lambda port: [str(PROGRAM), SCENARIO, str(port)],
    "qpidjms": lambda port: [
        *("java", "-cp", str(jars("jms") / "*"), str(JAVA / "Scenarios.java")),
        *(SCENARIO, str(port)),
    ],
}


@click.command()
@click.argument("client", type=click.Choice(sorted(COMMANDS)), required=False)
@click.option("--answers", is_flag=True, help="Write the broker's answers in all recordings anew.")
def main(client: str | None, *, answers: bool) -> None:
    """Record a client, or write new answers."""
    if client:
        title = f"# {client}: {SCENARIO}"
        (FOLDER / f"{client}.txt").write_text(_text([title, *record(COMMANDS[client])]), encoding="ascii")
    if answers:
        for file in FOLDER.glob("*.txt"):
            file.write_text(_text(file.read_text(encoding="ascii").splitlines()), encoding="ascii")


def _text(lines: list[str]) -> str:
    return "\n".join(play(lines)) + "\n"


def record(command: Callable[[int], list[str]]) -> list[str]:
    """Run a client against a broker, and return the frames that it sent as lines of a recording."""
    chunks: queue.SimpleQueue[tuple[str, bytes]] = queue.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "broker.toml")
        config.write_text('[security]\nmechanisms = ["PLAIN"]\n', encoding="ascii")  # others cannot be played again
        with (
            running_broker(Path(folder), "--config", str(config)) as broker,
            closing(socket.create_server(("127.0.0.1", 0))) as listener,
        ):
            accept = threading.Thread(target=_accept, args=(listener, broker.port, chunks), daemon=True)
            accept.start()
            subprocess.run(command(listener.getsockname()[1]), check=True, timeout=60)
    lines, rests = [], dict.fromkeys(ascii_uppercase, b"")
    while not chunks.empty():
        who, chunk = chunks.get()
        rests[who] += chunk
        while len(rest := rests[who]) >= (size := _size(rest)):
            lines.append(f"{who}> {rest[:size].hex()}")
            rests[who] = rest[size:]
    return lines


def _size(data: bytes) -> int:
    """Return the size of the frame or protocol header at the beginning; 8 or 4 if there is too little to tell."""
    if data[:4] == b"AMQP":
        return 8
    return int.from_bytes(data[:4], "big") if len(data) >= 4 else 4


def _accept(listener: socket.socket, port: int, chunks: queue.SimpleQueue[tuple[str, bytes]]) -> None:
    for who in ascii_uppercase:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        broker = socket.create_connection(("127.0.0.1", port))
        threading.Thread(target=_copy, args=(client, broker, lambda data, who=who: chunks.put((who, data)))).start()
        threading.Thread(target=_copy, args=(broker, client, len)).start()


def _copy(origin: socket.socket, target: socket.socket, tell: Callable[[bytes], object]) -> None:
    try:
        while data := origin.recv(1 << 16):
            tell(data)
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        target.close()


if __name__ == "__main__":
    main()
