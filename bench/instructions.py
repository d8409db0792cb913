"""The broker's instructions per message, counted by valgrind: the same on a busy machine, where times are not.

python bench/instructions.py [CHECKOUT ...] [--only "transient, acked"]

A load of `hot_path.py` is run twice in each checkout, with few and with many messages. The difference, divided by the
difference of the numbers, is free of the costs of the start. A large copy counts as one instruction for each octet,
though it takes much less time. The default loads need about 40 minutes for each checkout.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click

from bench.hot_path import BLOCK, DISTINCT_BLOCKS, LOADS

LOAD_NAMES = (
    "transient, auto-ack",
    "transient, acked (multiple)",
    "persistent, confirms, acked (multiple)",
    "transient, acked, varied",
    "persistent, confirms, acked, varied",
    "persistent, tx of 100, acked, varied",
)
MESSAGES = 150_000
"""So many that a garbage collection more or less in one of the runs hardly counts."""
_COUNTED = re.compile(r"I +refs: +([0-9,]+)")


def counted(checkout: Path, load: str, count: int) -> int:
    """Return the instructions of a run with `count` messages. Raises RuntimeError if it fails."""
    command = [
        *("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"),
        *(sys.executable, "bench/hot_path.py", "--only", load, "--count", str(count)),
    ]
    paths = os.pathsep.join((str(checkout / "src"), str(checkout)))
    environment = os.environ | {"PYTHONPATH": paths, "PYTHONHASHSEED": "0"}
    ran = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    found = _COUNTED.search(ran.stderr)
    if ran.returncode or found is None:
        raise RuntimeError(f"the load '{load}' failed in {checkout}: {ran.stderr[-2000:]}")
    return int(found[1].replace(",", ""))


def per_message(checkout: Path, load: str) -> float:
    """Return the instructions of the broker, and of the bench that feeds it, for one message."""
    varied = any(one.name == load and not one.variety.uniform for one in LOADS)
    few = BLOCK * (DISTINCT_BLOCKS + 4 if varied else 4)  # distinct messages are encoded before the load begins
    counted(checkout, load, few)  # compiles modules, if necessary
    return (counted(checkout, load, few + MESSAGES) - counted(checkout, load, few)) / MESSAGES


@click.command()
@click.argument("checkouts", nargs=-1, type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path))
@click.option("--only", "loads", multiple=True, default=LOAD_NAMES, help="A load of hot_path.py; can be repeated.")
def main(checkouts: tuple[Path, ...], loads: tuple[str, ...]) -> None:
    """Print the instructions per message of some loads in each CHECKOUT (this one), compared with the first."""
    if shutil.which("valgrind") is None:
        raise click.ClickException("valgrind was not found; on Debian and Ubuntu: apt-get install valgrind")
    for load in loads:
        first = 0.0
        for checkout in checkouts or (Path.cwd(),):
            found = per_message(checkout, load)
            first = first or found
            click.echo(f"{load:42} {found:10,.0f}  {found / first - 1:+7.1%}  {checkout}")


if __name__ == "__main__":
    main()
