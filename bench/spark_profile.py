"""`python bench/spark_profile.py [--messages N] [--path through]`: where the processor time of a row goes.

A streaming query reads a queue, and writes what it reads to another one (`through`) or discards it (`read`). For
uniform and varied rows with all columns (`spark_rows`), this prints the processor time of Java, of the Python workers
and of the broker for each row, and the functions in which each of them spends most of it. Java is sampled by its flight
recorder, which needs a JDK, and Python by py-spy, which needs permission to trace processes.
"""

from __future__ import annotations

import argparse
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench.brokers import EscrowMQ
from bench.spark_rows import PATHS, ROWS, Jobs, cpu_seconds

_TICKS = 100
_TOP = 6
_WAITING = frozenset(
    {"manager", "Condition.wait", "_worker", "Writer._run", "Runner.run", "read_int", "wait", "select"}
)
"""Functions that mostly wait. py-spy takes some waiting threads for busy ones."""
_JAVA_FRAME = re.compile(r"stackTrace = \[\s+([\w.$/]+)\(")


def processes(words: str) -> list[int]:
    """Return the living processes whose command line contains these words."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if words in (entry / "cmdline").read_text().replace("\0", " "):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def own_seconds(pid: int) -> float:
    """Return the CPU time of a process, without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / _TICKS


@contextmanager
def sampled_java(pid: int, folder: Path, found: Counter[str]) -> Iterator[None]:
    """Sample the functions that Java runs. Without a JDK, nothing is found."""
    if shutil.which("jcmd") is None or shutil.which("jfr") is None:
        yield
        return
    file = folder / "java.jfr"
    subprocess.run(["jcmd", str(pid), "JFR.start", "name=bench", "settings=profile"], check=True, capture_output=True)
    yield
    subprocess.run(["jcmd", str(pid), "JFR.dump", "name=bench", f"filename={file}"], check=True, capture_output=True)
    subprocess.run(["jcmd", str(pid), "JFR.stop", "name=bench"], check=True, capture_output=True)
    printed = subprocess.run(
        ["jfr", "print", "--events", "jdk.ExecutionSample", str(file)], check=True, capture_output=True, text=True
    )
    found.update(".".join(name.split(".")[-2:]) for name in _JAVA_FRAME.findall(printed.stdout))


@contextmanager
def sampled_python(pid: int, file: Path, found: Counter[str]) -> Iterator[None]:
    """Sample the functions that a Python process and its children run."""
    command = [str(Path(sys.prefix, "bin", "py-spy")), "record", "--subprocesses", "--pid", str(pid)]
    command += ["--format", "raw", "--duration", "100000", "--output", str(file)]
    sampler = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        sampler.send_signal(signal.SIGINT)
        sampler.wait(120)
    for line in file.read_text().splitlines() if file.exists() else ():
        stack, _, count = line.rpartition(" ")
        function = stack.rpartition(";")[2].partition(" (")[0]
        if count.isdigit() and function not in _WAITING:  # a command line may have several lines
            found[function] += int(count)


def profile(jobs: Jobs, broker: int, rows: str, path: str, count: int, folder: Path) -> None:
    """Run one job and print its costs."""
    gateway = jobs.spark.sparkContext._gateway
    assert gateway is not None
    java = int(gateway.proc.pid)
    daemons = [pid for pid in processes("pyspark.daemon pyspark.worker") if _parent(pid) == java]
    functions: dict[str, Counter[str]] = {side: Counter() for side in ("Java", "Python workers", "broker")}
    before = (*cpu_seconds([broker]), own_seconds(java))
    with ExitStack() as samplers:
        samplers.enter_context(sampled_java(java, folder, functions["Java"]))
        for daemon in daemons:
            file = folder / f"{rows}-{daemon}.txt"
            samplers.enter_context(sampled_python(daemon, file, functions["Python workers"]))
        samplers.enter_context(sampled_python(broker, folder / f"{rows}-broker.txt", functions["broker"]))
        jobs.run(rows, "all", path)
        after = (*cpu_seconds([broker]), own_seconds(java))
    spark, serving, in_java = (now - then for now, then in zip(after, before, strict=True))
    print(f"\n{rows} rows, all columns, {path}: µs for each row, and the functions with most samples")
    for side, seconds in (("Java", in_java), ("Python workers", spark - in_java), ("broker", serving)):
        top = functions[side].most_common(_TOP)
        whole = sum(functions[side].values()) or 1
        print(f"{side:16}{seconds / count * 1e6:6.2f}  " + ", ".join(f"{name} {n / whole:.0%}" for name, n in top))


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def main(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        server = EscrowMQ(folder / "broker")
        server.start()
        try:
            jobs = Jobs(server.url, server.pids(), options.messages, folder)
            try:
                jobs.run("varied", "all", options.path)  # Java compiles what it runs often
                for rows in options.rows:
                    profile(jobs, server.pids()[0], rows, options.path, options.messages, folder)
            finally:
                jobs.close()
        finally:
            server.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=ROWS)
    parser.add_argument("--path", choices=PATHS, default="through")
    main(parser.parse_args())
