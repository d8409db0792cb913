"""Build the wheel, install it with the pinned dependencies into a bare environment of each Python, and use it.

`python -m tools.wheel PYTHON…` needs a network for the packages in requirements/run.lock and requirements/build.lock.
In each environment it starts a broker with its HTTP interface, publishes and consumes with confirms, and makes a
backup.
"""

from __future__ import annotations

import email
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
NEEDED: Final = (
    "Name",
    "Version",
    "Summary",
    "License-Expression",
    "Requires-Python",
    "Keywords",
    "Author",
    "Description-Content-Type",
)
"""Fields that the metadata must have."""


def run(*command: object) -> str:
    """Run a command; return its output. Raises SystemExit with its errors if it fails."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ESCROWMQ_"))}
    done = subprocess.run([*map(str, command)], cwd="/", env=clean, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def environment(python: str, folder: Path, lock: str) -> Path:
    """Make an environment with exactly the packages of a lock. Return the folder of its commands."""
    run(python, "-m", "venv", folder)
    install = (folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(*install, "--require-hashes", "--only-binary", ":all:", "-r", ROOT / "requirements" / lock)
    return folder / "bin"


def built(folder: Path) -> Path:
    """Build the wheel from a copy of what it is made of, and check its metadata. Return its path."""
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__"))
    tools = environment(sys.executable, folder / "build", "build.lock")
    run(tools / "python", "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, source)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(name))
        missing = [field for field in NEEDED if not metadata[field]]
        if missing or "escrowmq/py.typed" not in archive.namelist():
            sys.exit(f"the wheel lacks {missing or 'py.typed'}")
    return wheel


def used(bin_: Path, folder: Path) -> str:
    """Start a broker, send messages through it, and back it up. Return what the load tool reports."""
    escrowmq, data = bin_ / "escrowmq", folder / "data"
    with subprocess.Popen(
        [
            *(escrowmq, "serve", "--data-dir", data, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"),
            *("--log-level", "warning"),
        ],
        cwd="/",
        stdout=subprocess.PIPE,
        text=True,
    ) as broker:
        try:
            assert broker.stdout is not None
            ready = broker.stdout.readline().split()
            http = broker.stdout.readline()
            if ready[:1] != ["ready"] or not http.startswith("ready http://"):
                sys.exit(f"the broker did not start: {ready} {http}")
            url = ready[1].replace("amqp://", "amqp://guest:guest@") + "/"
            report = run(escrowmq, "perf", "--url", url, "--count", 1000, "--persistent", "--confirms", "--quiet")
            run(escrowmq, "backup", folder / "backup", "--data-dir", data)
        finally:
            broker.terminate()
    if broker.returncode:
        sys.exit(f"the broker ended with {broker.returncode}")
    return report


def main(pythons: list[str]) -> None:
    """Build once, and try the wheel with each Python."""
    with tempfile.TemporaryDirectory(prefix="escrowmq-wheel-") as name:
        folder = Path(name)
        wheel = built(folder)
        for number, python in enumerate(pythons):
            place = folder / str(number)
            bin_ = environment(python, place / "venv", "run.lock")
            run(bin_ / "python", "-m", "pip", "install", "--quiet", "--no-deps", wheel)
            run(bin_ / "python", "-m", "pip", "check")
            used(bin_, place)
            version = run(bin_ / "python", "--version").strip()
            print(f"{wheel.name} works with {version}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or [sys.executable])
