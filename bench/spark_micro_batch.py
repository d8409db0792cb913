"""What a micro-batch of one message is made of: `python bench/spark_micro_batch.py`.

Moves single messages from a queue to another, with a trigger as fast as possible, and prints the median time of each
step that Spark reports. With `--strace`, it also counts the processes that Spark starts for each micro-batch.
"""

from __future__ import annotations

import collections
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click

sys.path.insert(0, str(Path(__file__).parents[1]))

import escrowmq.spark
from escrowmq.client import Channel, connect
from escrowmq.pipeline.session import session
from tests.broker import running_broker

PERSISTENT = b"\x10\x00\x02"
WARM_UP = 10


@click.command()
@click.option("--count", default=30, show_default=True, help="The number of micro-batches to measure.")
@click.option("--conf", multiple=True, metavar="NAME=VALUE", help="A setting of the session.")
@click.option("--strace", is_flag=True, help="Count the processes that Spark starts; this makes them slower.")
def main(count: int, conf: tuple[str, ...], strace: bool) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        running_broker(Path(folder)) as broker,
        connect(broker.url) as connection,
    ):
        channel = connection.channel()
        channel.confirm_delivery()
        for name in ("in", "out"):
            channel.queue_declare(name, durable=True)
        spark = session("local[2]", conf=dict(text.split("=", 1) for text in conf))
        escrowmq.spark.register(spark)
        source = spark.readStream.format("escrowmq").options(url=broker.url, subscribe="in", group="g").load()
        sink = source.select("body").writeStream.format("escrowmq").options(url=broker.url, queue="out")
        query = sink.option("checkpointLocation", f"{folder}/checkpoint").start()
        seconds = [one(channel) for _ in range(WARM_UP + count)][WARM_UP:]
        steps: dict[str, list[int]] = collections.defaultdict(list)
        for progress in [each for each in query.recentProgress if each.numInputRows][-count:]:
            for name, milliseconds in progress.durationMs.items():
                steps[name].append(milliseconds)
        for name, values in sorted(steps.items(), key=lambda step: -statistics.median(step[1])):
            click.echo(f"{name:22} {statistics.median(values):6.0f} ms")
        click.echo(f"{'published to visible':22} {1000 * statistics.median(seconds):6.0f} ms")
        if strace:
            count_processes(spark, channel, Path(folder, "strace"), count)
        query.stop()
        spark.stop()


def one(channel: Channel) -> float:
    """Publish a message, and return the seconds until it has arrived."""
    begun = time.perf_counter()
    channel.basic_publish("", "in", b"x")
    while channel.basic_get("out", auto_ack=True)[0] is None:
        time.sleep(0.002)
    return time.perf_counter() - begun


def count_processes(spark: Any, channel: Channel, log: Path, count: int) -> None:
    """Print the programs that the JVM has started during `count` micro-batches."""
    java = spark.sparkContext._gateway.proc.pid
    command = [
        "strace",
        "-f",
        "-qq",
        "-e",
        "trace=execve",
        "-e",
        "signal=none",
        "-s",
        "60",
        "-o",
        str(log),
        "-p",
        str(java),
    ]
    tracer = subprocess.Popen(command)
    time.sleep(2)
    for _ in range(count):
        one(channel)
    tracer.terminate()
    tracer.wait()
    found = collections.Counter(
        Path(match[1]).name
        for match in re.finditer(r'execve\("([^"]+)".*= 0$', log.read_text(), re.MULTILINE)
        if not match[1].endswith("jspawnhelper")  # through which Java starts all others
    )
    for name, times in found.most_common():
        click.echo(f"{times / count:5.1f} times for each micro-batch: {name}")


if __name__ == "__main__":
    main()
