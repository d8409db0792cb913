"""Draw the plots of the report as images embedded in HTML."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from math import ceil, floor, log10
from typing import TYPE_CHECKING, Final

from escrowmq.human import duration

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BARS: Final = 400
"""The maximum number of steps in a plot over time. Longer periods have steps of several minutes."""
LEAST: Final = 0.01
"""The shortest latency shown, in milliseconds; anything shorter is drawn as this."""
_STEPS: Final = (1, 5, 15, 60, 360, 1440)
_BLUE, _ORANGE, _PALE = "#2f6fb0", "#d9822b", "#c8d7e6"


def flow(minutes: Mapping[datetime, tuple[int, int]]) -> str:
    """Return a plot of the messages published and settled in each minute. Minutes that are not given count as zero."""
    step, edges, published, settled = steps(minutes)
    figure, axes = _figure(2.6)
    axes.stairs(published, edges, fill=True, color=_PALE)  # type: ignore[arg-type]
    axes.stairs(published, edges, color=_BLUE, label="published")  # type: ignore[arg-type]
    axes.stairs(settled, edges, color=_ORANGE, label="settled")  # type: ignore[arg-type]
    axes.set_ylabel("messages per " + ("minute" if step == 1 else duration(step * 60e3)))
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    figure.autofmt_xdate()
    return _image(figure)


def steps(minutes: Mapping[datetime, tuple[int, int]]) -> tuple[int, list[datetime], list[int], list[int]]:
    """Group minutes into at most about BARS steps.

    Returns the length of a step in minutes, the edges of the steps, and the counts published and settled in each.
    """
    first, last = min(minutes), max(minutes)
    span = int((last - first).total_seconds()) // 60 + 1
    step = next((each for each in _STEPS if span <= each * BARS), _STEPS[-1])
    count = -(-span // step)
    edges = [first + timedelta(minutes=step * i) for i in range(count + 1)]
    published, settled = [0] * count, [0] * count
    for minute, (came, went) in minutes.items():
        i = int((minute - first).total_seconds()) // 60 // step
        published[i] += came
        settled[i] += went
    return step, edges, published, settled


def latency(queues: Sequence[tuple[str, float, float]]) -> str:
    """Return a plot of queues, each given with the median and the 99th percentile of its latency in milliseconds."""
    queues = [(name, max(median, LEAST), max(late, LEAST)) for name, median, late in queues]
    figure, axes = _figure(1 + 0.35 * len(queues))
    places = range(len(queues))
    axes.barh(places, [late for _, _, late in queues], color=_PALE, label="99 %")
    axes.barh(places, [median for _, median, _ in queues], color=_BLUE, label="median", height=0.4)
    axes.set_yticks(list(places), [name for name, _, _ in queues])
    axes.invert_yaxis()
    axes.set_xscale("log")
    least, most = (min(median for _, median, _ in queues), max(late for _, _, late in queues))
    axes.set_xlim(10 ** floor(log10(least)), 10 ** ceil(log10(max(most, 2 * least))))
    axes.xaxis.set_major_formatter(lambda value, _: duration(value))
    axes.xaxis.set_minor_formatter(lambda _value, _: "")
    axes.set_xlabel("from publish to settlement, in the busiest hour")
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    return _image(figure)


def _figure(height: float) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, height), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _image(figure: Figure) -> str:
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=110)
    return f'<img alt="" src="data:image/png;base64,{base64.b64encode(data.getvalue()).decode()}">'
