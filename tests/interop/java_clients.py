"""Runs the Java clients in java/ against a broker. `make jms` installs them."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.interop.scenarios import Scenarios, running

JAVA = Path(__file__).parent / "java"


def jars(folder: str) -> Path:
    """Return the folder with the jars of a client."""
    return Path(sys.prefix, folder)


def needs(client: str, folder: str) -> pytest.MarkDecorator:
    """Skip the tests unless Java and the jars of `client` are installed in `folder`."""
    return pytest.mark.skipif(
        shutil.which("javac") is None or not list(jars(folder).glob(f"{client}-*.jar")),
        reason="needs a Java development kit of version 17 or newer, and make jms",
    )


def names(*sources: str) -> list[str]:
    """Return the names of the scenarios that need nothing but a running broker."""
    text = "".join((JAVA / source).read_text(encoding="utf-8") for source in sources)
    return re.findall(r"@Scenario\n    static void (\w+)\(", text)


@contextmanager
def scenarios_of(
    source: str | Sequence[str],
    folder: str,
    factory: pytest.TempPathFactory,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Scenarios]:
    """Run the scenarios of one or more sources with the client in `folder`, in one virtual machine (Runner.java)."""
    temporary = factory.mktemp(folder)
    home, path = f"-Duser.home={temporary}", str(jars(folder) / "*")
    sources = [str(JAVA / each) for each in ((source,) if isinstance(source, str) else source)]
    brief = "-XX:TieredStopAtLevel=1"  # the virtual machine lives too briefly for its slower compiler
    command = ["java", brief, home, "-cp", path, str(JAVA / "Runner.java"), *sources]
    with running(command, temporary, environment) as it:
        yield it
