"""RocketMQ's recorded answers to the scripts, one file for each, in a folder named after its version.

`python -m tests.interop.rocketmq.differential.records` records them again with the RocketMQ that `make peers` fetches.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.rocketmq_broker import RocketMQ
from tests.interop.rocketmq.differential import administration, consuming, sending, transactions
from tests.interop.rocketmq.differential.script import Script

FOLDER: Final = Path(__file__).parent / "rocketmq-5.3.3"

SCENARIOS: Final[dict[str, Callable[[Script], None]]] = {
    f"{module.__name__.rpartition('.')[2]}.{scenario.__name__}": scenario
    for module in (sending, consuming, transactions, administration)
    for scenario in module.SCENARIOS
}

SETTINGS: Final = {
    "enablePropertyFilter": "true",
    "recallMessageEnable": "true",
    "timerWheelEnable": "true",
    "transactionCheckInterval": "1000",
    "transactionTimeOut": "1000",
}
"""Settings of the recorded broker that are not RocketMQ's defaults."""


def run(name: str, name_server: int, broker: int) -> list[str]:
    """Execute a scenario on the broker with these ports, and return the recorded lines."""
    script = Script(name, name_server, broker)
    try:
        SCENARIOS[name](script)
    finally:
        script.close()
    return script.lines


def recorded(name: str) -> list[str]:
    return (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()


def installed() -> bool:
    """Whether the real RocketMQ can be started."""
    return shutil.which("java") is not None and bool(list(RocketMQ.jars.glob("rocketmq-broker-*.jar")))


class _Recorded(RocketMQ):
    def _configure(self) -> list[str]:
        arguments = super()._configure()
        with (self.directory / "broker.conf").open("a") as file:
            file.writelines(f"{name}={value}\n" for name, value in SETTINGS.items())
        return arguments


@contextmanager
def rocketmq() -> Iterator[tuple[int, int]]:
    """Start RocketMQ on free ports with an empty folder. Return the ports of the name server and of the broker."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        server = _Recorded(Path(folder))
        server.start()
        try:
            yield server.port, server._broker_port
        finally:
            server.stop()


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with rocketmq() as (name_server, broker):
        for name in SCENARIOS:
            lines = run(name, name_server, broker)
            (FOLDER / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
