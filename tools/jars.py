"""Fetch Java programs and the jars that they need from Maven's central repository: clients for the interop tests, and
brokers for the benchmarks.

`python -m tools.jars LIST FOLDER` puts the jars of a list, such as requirements/jms.jars, into the folder. Each line of
the list has the jar's coordinates, `group:artifact:version[:classifier]`, and its SHA-256. Proxies are taken from the
environment, as in `https_proxy`.
"""

from __future__ import annotations

import hashlib
import sys
import urllib.request
from pathlib import Path

REPOSITORY = "https://repo1.maven.org/maven2"
TIMEOUT_SECONDS = 60
ATTEMPTS = 3


def fetch(names: Path, folder: Path) -> None:
    """Put each jar of the list `names` into `folder`. Exits with an error if a jar cannot be fetched or differs."""
    folder.mkdir(parents=True, exist_ok=True)
    for line in names.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        name, digest = line.split()
        group, artifact, version, *classifier = name.split(":")
        jar = "-".join((artifact, version, *classifier)) + ".jar"
        url = f"{REPOSITORY}/{group.replace('.', '/')}/{artifact}/{version}/{jar}"
        data = _download(url)
        if hashlib.sha256(data).hexdigest() != digest:
            sys.exit(f"{url} does not match its checksum in {names.name}")
        (folder / jar).write_bytes(data)


def _download(url: str) -> bytes:
    reason: OSError | None = None
    for _ in range(ATTEMPTS):
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310 - https
                data: bytes = answer.read()
                return data
        except OSError as error:
            reason = error
    sys.exit(f"{url} could not be fetched: {reason}")


if __name__ == "__main__":
    fetch(Path(sys.argv[1]), Path(sys.argv[2]))
