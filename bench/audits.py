"""The audit's speed, how its time and memory grow with the journal, and how much it slows the broker down.

`python -m bench.audits [MESSAGES …]` audits journals of varied messages, and prints rate, memory and verdict of each.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import mean
from types import TracebackType
from typing import Any, NamedTuple, Self

from bench.brokers import Broker
from bench.measure import MeasureError, perf
from tests.pipeline.journals import large

RUN = 10
"""Messages in one record of the journals that are written here, as of a publisher that sends in batches."""
_LIMIT = 1800.0
_LONG = 5
"""The longest journal has so many times the messages of the others."""
_SAMPLE = 0.2
_BUSY = "silver"
"""The stage at which Spark has started and the audit works."""


class Audit:
    """`escrowmq audit` in a separate process, whose memory is measured."""

    def __init__(self, journal: Path, out: Path, *options: str) -> None:
        self.peak_bytes = 0
        self._begin = time.monotonic()
        self.stages: list[str] = []
        command = [sys.executable, "-m", "escrowmq", "audit", str(journal), "--out", str(out), "--json", *options]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._watch, self._listen)]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the process if it is still running."""
        if self._process.poll() is None:
            self._process.terminate()
        self._process.wait()
        for thread in self._threads:
            thread.join()

    @property
    def running(self) -> bool:
        """Whether the audit is still running."""
        return self._process.poll() is None

    def wait_until_busy(self) -> None:
        """Wait until Spark has started and the audit works. Raises MeasureError if that does not happen."""
        while not any(_BUSY in stage for stage in self.stages):
            if not self.running:
                raise MeasureError(f"the audit ended immediately: {' / '.join(self.stages)}")
            time.sleep(_SAMPLE)

    def finish(self) -> tuple[float, dict[str, Any]]:
        """Return the seconds that it took, and its verdict. Raises MeasureError if there is no verdict or it is not
        CLEAN.
        """
        assert self._process.stdout is not None
        said = self._process.stdout.read()
        code = self._process.wait(_LIMIT)
        seconds = time.monotonic() - self._begin
        if code:
            raise MeasureError(f"the audit ended with {code}: {(said or ' / '.join(self.stages))[-300:]}")
        verdict: dict[str, Any] = json.loads(said.splitlines()[-1])
        return seconds, verdict

    def _listen(self) -> None:
        assert self._process.stderr is not None
        self.stages.extend(line.strip() for line in self._process.stderr)

    def _watch(self) -> None:
        while self.running:
            self.peak_bytes = max(self.peak_bytes, _resident(self._process.pid))
            time.sleep(_SAMPLE)


def _resident(session: int) -> int:
    """Return the bytes that the processes of a session hold in memory; shared memory is counted once."""
    whole = 0
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.getsid(int(entry.name)) == session:
                lines = (entry / "smaps_rollup").read_text().splitlines()
                whole += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
        except OSError:  # the process has just ended
            continue
    return whole


def measured(broker: Broker, messages: int, duration: float) -> dict[str, float]:
    """Return all figures, with journals of `messages`, half as many and five times as many. The broker is loaded for
    `duration` s at a time.
    """
    folder = broker.directory / "audits"
    broker.freeze()
    try:
        whole = _audited(folder / "whole", messages, varied=False)
        half = _audited_once(folder / "half", messages // 2, varied=False)
        varied = _audited_once(folder / "varied", messages, varied=True)
        long = _audited_once(folder / "long", messages * _LONG, varied=True)
    finally:
        broker.thaw()
    return {
        "audit.varied-rate": messages / varied.seconds,
        "audit.varied-memory": varied.peak_bytes / 1e6,
        "audit.varied-long": long.seconds / varied.seconds / _LONG,
        "audit.varied-long-memory": long.peak_bytes / 1e6,
        "audit.rate": messages / whole.seconds,
        "audit.twice": whole.seconds / half.seconds,
        "audit.memory": whole.peak_bytes / 1e6,
        "audit.memory-twice": whole.peak_bytes / half.peak_bytes,
        "audit.broker-share": _share(broker, folder / "whole", folder / "out-beside", duration),
    }


class _Audited(NamedTuple):
    seconds: float
    peak_bytes: int


def _audited(journal: Path, count: int, *, varied: bool) -> _Audited:
    """Write a journal of `count` messages and audit it."""
    large(journal, count, RUN, varied=varied)
    with Audit(journal, journal.with_name(f"{journal.name}-out"), "--no-nice") as audit:
        seconds, verdict = audit.finish()
    if verdict["messages"] < count:
        raise MeasureError(f"the audit knows {verdict['messages']} of {count} messages")
    return _Audited(seconds, audit.peak_bytes)


def _audited_once(journal: Path, count: int, *, varied: bool) -> _Audited:
    """Do the same, and delete the journal, which is as large as gigabytes."""
    audited = _audited(journal, count, varied=varied)
    shutil.rmtree(journal)
    return audited


def _share(broker: Broker, journal: Path, out: Path, duration: float) -> float:
    """Return the broker's confirm rate during an audit, divided by its mean rate before and after it."""

    def rate() -> float:
        broker.settle()
        confirmed = perf(broker, "--scenario", "confirms", "--duration", str(duration))["rates"]["confirm"]
        return float(confirmed)

    rate()
    before = rate()
    with Audit(journal, out) as audit:
        audit.wait_until_busy()
        beside = rate()
        if not audit.running:
            raise MeasureError("the audit ended before the load did")
    return beside / mean((before, rate()))


def main() -> None:
    """Audit journals of varied messages, each with its own routing key and properties."""
    parser = argparse.ArgumentParser(description="Audit journals of varied messages.")
    parser.add_argument("messages", type=int, nargs="*", default=[10_000_000], help="their numbers of messages")
    parser.add_argument("--routing", action="store_true", help="route the messages again")
    parser.add_argument("--folder", type=Path, help="keep the journals there, and use those that are there")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        for count in given.messages:
            journal = (given.folder or Path(scratch)) / f"varied-{count}"
            if not journal.exists():
                large(journal, count, RUN, varied=True)
            _report(journal, Path(scratch) / f"out-{count}", count, *(["--routing"] if given.routing else []))


def _report(journal: Path, out: Path, count: int, *options: str) -> None:
    with Audit(journal, out, "--no-nice", *options) as audit:
        seconds, verdict = audit.finish()
    said = "CLEAN" if verdict["clean"] else f"{verdict['violations']} violations"
    print(
        f"{verdict['messages']:,} messages in {seconds:.1f} s: {count / seconds:,.0f}/s, "
        f"{audit.peak_bytes / 1e9:.2f} GB at most in all processes, {said}"
    )
    for stage in audit.stages:
        print(f"  {stage}")


if __name__ == "__main__":
    main()
