"""Fetch the jars for the tests of Delta and Iceberg, next to the PySpark that `make lake` installs into a folder.

`python -m tools.lake FOLDER` uses Ivy, which is part of PySpark, to fetch them from Maven's central repository.
requirements/lake.jars lists those of their dependencies that the tests use; the others are Spark itself, or for other
stores.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from escrowmq.java import SparkUnavailableError, java_home

LIST = Path(__file__).parents[1] / "requirements" / "lake.jars"


def fetch(folder: Path) -> None:
    """Put each jar of the list into `folder`/jars. Exits with an error if a jar cannot be fetched or differs."""
    home = java_home() or os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else "java"
    (ivy,) = folder.glob("pyspark/jars/ivy-*.jar")
    for line in LIST.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        name, digest = line.split()
        _, artifact, version = coordinates = name.split(":")
        jar = folder / "jars" / f"{artifact}-{version}.jar"
        place = str(jar.parent / "[artifact]-[revision].[ext]")
        command = [java, "-jar", ivy, "-notransitive", "-types", "jar", "-dependency", *coordinates, "-retrieve", place]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if not jar.exists():
            sys.exit(
                f"{ran.stdout}{ran.stderr}\n{name} could not be fetched from Maven's central repository; see above"
            )
        if hashlib.sha256(jar.read_bytes()).hexdigest() != digest:
            sys.exit(f"{jar} does not match its checksum in {LIST.name}; remove it here and from Ivy's cache")


if __name__ == "__main__":
    try:
        fetch(Path(sys.argv[1]))
    except SparkUnavailableError as error:
        sys.exit(str(error))
