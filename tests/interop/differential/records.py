"""RabbitMQ's recorded answers to the scripts, one file for each, in a folder named after its version.

`python -m tests.interop.differential.records` records them again with the installed rabbitmq-server.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.brokers import RabbitMQ
from tests.interop.differential import access, arguments, delivery, errors, queues, routing
from tests.interop.differential.script import Script

FOLDER = Path(__file__).parent / "rabbitmq-3.10.8"

SCENARIOS: dict[str, Callable[[Script], None]] = {
    f"{module.__name__.rpartition('.')[2]}.{scenario.__name__}": scenario
    for module in (access, errors, arguments, delivery, queues, routing)
    for scenario in module.SCENARIOS
}


def run(name: str, port: int) -> list[str]:
    """Execute a scenario on the broker at `port`, and return the recorded lines."""
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
    """Start the installed rabbitmq-server on a free port with an empty data folder."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        server = RabbitMQ(Path(folder))
        server.start()
        try:
            _add_user(server)
            yield server
        finally:
            server.stop()


def _add_user(server: RabbitMQ) -> None:
    """Add the user of `access`. This uses a single call of rabbitmqctl, which is slow."""
    user = f'<<"{access.USER}">>'
    topic = ", ".join(f'<<"{right}">>' for right in (access.TOPIC_WRITE, access.TOPIC_READ))
    rights = ", ".join(f'<<"{right}">>' for right in (access.CONFIGURE, access.WRITE, access.READ))
    program = f"""
        rabbit_auth_backend_internal:add_user({user}, {user}, <<"test">>),
        rabbit_auth_backend_internal:set_permissions({user}, <<"/">>, {rights}, <<"test">>),
        rabbit_auth_backend_internal:set_topic_permissions({user}, <<"/">>, <<"amq.topic">>, {topic}, <<"test">>).
    """
    environment = {"PATH": os.environ["PATH"], "HOME": str(server.directory), "ERL_EPMD_PORT": str(server._epmd_port)}
    command = ["/usr/lib/rabbitmq/bin/rabbitmqctl", "--node", "bench@localhost", "eval", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode or done.stdout.strip() != "ok":
        raise RuntimeError(f"rabbitmqctl: {done.stdout} {done.stderr}")


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with rabbitmq() as server:
        for name in SCENARIOS:
            lines = run(name, server.port)
            (FOLDER / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
