"""`python -m tests.jms_suite` runs the Joram JMS tests by Qpid JMS against a broker of its own.

Joram's tests check the interfaces of JMS 1.1. Suite.java gives them connections and destinations. `make jms-suite`
fetches them. Only some classes or one method: `python -m tests.jms_suite SelectorTest --only testIn`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import click

from tests.broker import running_broker

JARS = Path(sys.prefix, "jms-suite")
SOURCE = Path(__file__).parent / "Suite.java"
PATIENCE_MS = 5000


@click.command()
@click.argument("classes", nargs=-1)
@click.option("--only", help="Run only the methods of this name.")
def main(classes: tuple[str, ...], only: str | None) -> None:
    """Run all tests, or those of some classes, and list the failures."""
    with tempfile.TemporaryDirectory(prefix="escrowmq-jms-suite-") as name:
        folder = Path(name)
        subprocess.run(["javac", "-cp", str(JARS / "*"), "-d", name, str(SOURCE)], check=True)
        (folder / "provider.properties").write_text("jms.provider.admin.class=Suite\n", encoding="ascii")
        (folder / "test.properties").write_text(f"timeout={PATIENCE_MS}\n", encoding="ascii")
        wanted = [one for one in all_classes() if not classes or one.rpartition(".")[2] in classes]
        with running_broker(folder) as broker, (folder / "stderr").open("wb") as errors:
            command = ["java", "-cp", f"{folder}:{JARS / '*'}", "Suite", str(broker.port), *wanted]
            filters = ["--only", only] if only else []
            ran = subprocess.run([*command, *filters], stdout=subprocess.PIPE, stderr=errors, text=True, check=False)
        results = ran.stdout.splitlines()
        failed = [line for line in results if not line.startswith("passed ")]
        if failed or not results or ran.returncode:
            click.echo((folder / "stderr").read_text(encoding="utf-8", errors="replace"), err=True)
    for line in failed:
        click.echo(line)
    click.echo(f"{len(results) - len(failed)} of {len(results)} tests passed")
    sys.exit(bool(failed) or not results or ran.returncode)


def all_classes() -> list[str]:
    """Return the names of the suite's classes."""
    (jar,) = JARS.glob("joram-jms-tests-*.jar")
    with zipfile.ZipFile(jar) as archive:
        files = sorted(file for file in archive.namelist() if "/conform/" in file and file.endswith("Test.class"))
    return [file.removesuffix(".class").replace("/", ".") for file in files]


if __name__ == "__main__":
    main()
