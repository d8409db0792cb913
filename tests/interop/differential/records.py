"""What RabbitMQ answered to the scripts: one text for each, in the folder that is named after its version.

Write them anew, from the rabbitmq-server that is installed here: `python -m tests.interop.differential.records`
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.brokers import RabbitMQ
from tests.interop.differential import arguments, delivery, errors, queues, routing
from tests.interop.differential.script import Script

FOLDER = Path(__file__).parent / "rabbitmq-3.10.8"

SCENARIOS: dict[str, Callable[[Script], None]] = {
    f"{module.__name__.rpartition('.')[2]}.{scenario.__name__}": scenario
    for module in (errors, arguments, delivery, queues, routing)
    for scenario in module.SCENARIOS
}


def run(name: str, port: int) -> list[str]:
    """What the broker at `port` answers to a scenario."""
    script = Script(name, port)
    try:
        SCENARIOS[name](script)
    finally:
        script.close()
    return script.lines


def recorded(name: str) -> list[str]:
    return (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()


@contextmanager
def rabbitmq() -> Iterator[RabbitMQ]:
    """The rabbitmq-server that is installed, on a free port and with data of its own."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        server = RabbitMQ(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.stop()


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with rabbitmq() as server:
        for name in SCENARIOS:
            lines = run(name, server.port)
            (FOLDER / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
