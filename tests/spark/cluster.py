"""Start a standalone Spark cluster or a server of Spark Connect on this machine, with PySpark's own `spark-class`."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark

from escrowmq.java import prepare
from escrowmq.pipeline import archive
from tests.spark_settings import SMALL_QUERIES

QUICK = shlex.join(
    ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m", "-XX:+UseSerialGC", *archive.options())
)
"""Options with which Java starts quickly; a cluster starts it six times."""
CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
PATIENCE = 60.0
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


class Daemons:
    """Processes of Spark, which end together."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        prepare()
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def start(self) -> None:
        """Start the processes, and wait until they can be used."""
        raise NotImplementedError

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self, name: str, *command: str, memory: str = "256m") -> Path:
        log = self._folder / f"{name}.log"
        environment = {
            **os.environ,
            "SPARK_DAEMON_MEMORY": memory,
            "SPARK_DAEMON_JAVA_OPTS": QUICK,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        with log.open("wb") as output:
            process = subprocess.Popen([str(CLASS), *command], env=environment, stdout=output, stderr=output)
        self._processes.append(process)
        return log

    def _await(self, log: Path, pattern: str) -> str:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            found = re.search(pattern, log.read_text(errors="replace"))
            if found:
                return found[1]
            assert all(process.poll() is None for process in self._processes), log.read_text(errors="replace")
            time.sleep(0.05)
        raise AssertionError(f"no {pattern!r} in {PATIENCE} s:\n{log.read_text(errors='replace')}")

    def stop(self) -> None:
        """End all processes; a worker ends its executors."""
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Cluster(Daemons):
    """A master and two workers, each with one core and one executor."""

    master = ""

    def start(self) -> None:
        address = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        log = self._start("master", "org.apache.spark.deploy.master.Master", *address)
        self.master = self._await(log, r"Starting Spark master at (spark://\S+)")
        logs = []
        for name in ("one", "two"):
            folder = self._folder / name
            size = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder))
            worker = "org.apache.spark.deploy.worker.Worker"
            logs.append(self._start(name, worker, *address, *size, self.master))
        for log in logs:
            self._await(log, r"(Successfully registered with master)")


class ConnectServer(Daemons):
    """A server of Spark Connect with two local cores."""

    remote = ""

    def start(self) -> None:
        settings = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": "0",
            "spark.ui.enabled": "false",
            "spark.driver.extraJavaOptions": QUICK,
            **SMALL_QUERIES,
        }
        command = ["org.apache.spark.deploy.SparkSubmit", "--master", "local[2]"]
        for name, value in settings.items():
            command += ["--conf", f"{name}={value}"]
        log = self._start("connect", *command, "--class", SERVER, "spark-internal", memory="768m")
        self.remote = "sc://" + self._await(log, r"Spark Connect server started at: (\S+)")
