"""Each model of a transaction is measured, with a separate broker and a real PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.brokers import EscrowMQ
from bench.measure import MeasureError
from bench.model_users import MODELS
from bench.models import Models
from bench.rocketmq_broker import RocketmqEscrowMQ
from bench.scenario import Settings
from tests.xa.postgres import needs_postgresql

SMALL = Settings(duration=1.0, scale=0.01)


@needs_postgresql
@pytest.mark.slow
def test_every_model_yields_all_its_figures(tmp_path: Path) -> None:
    broker = RocketmqEscrowMQ(tmp_path)
    broker.start()
    try:
        models = Models()
        models.warm_up(broker, SMALL)
        figures = models.measure(broker, SMALL).figures
    finally:
        broker.stop()
    assert figures.keys() == {figure.name for figure in models.figures}
    assert all(value > 0 for value in figures.values())
    trips = {name: round(figures[f"models.{name}.round-trips"]) for name in MODELS}
    assert trips == {"tx": 1, "half": 2, "xa": 5, "link": 1}


def test_a_broker_without_topics_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MeasureError, match="does not have all models"):
        Models().measure(EscrowMQ(tmp_path), SMALL)
