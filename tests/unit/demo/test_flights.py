"""The data set is read completely and without pandas, and each record has its number."""

from __future__ import annotations

import json
import zipfile
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from escrowmq.demo import flights

HEAD = "year,dep_delay,carrier,tailnum,time_hour\n"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "flights.csv.zip"
    with zipfile.ZipFile(path, "w") as zipped:
        zipped.writestr(flights.MEMBER, HEAD + "2013,-4,UA,N14228,2013-01-01T10:00:00Z\n2013,NA,B6,NA,x\n")
    return path


def test_numbers_are_numbers_and_the_unknown_is_null(small: Path) -> None:
    first, second = flights.flights(small, 10)
    assert first == {
        "year": 2013,
        "dep_delay": -4,
        "carrier": "UA",
        "tailnum": "N14228",
        "time_hour": "2013-01-01T10:00:00Z",
    }
    assert second["dep_delay"] is None
    assert second["tailnum"] is None


def test_count_and_limit(small: Path) -> None:
    assert flights.count(small) == 2
    assert len(list(flights.flights(small, 1))) == 1


def test_a_message_is_one_json_object_with_its_number(small: Path) -> None:
    flight = next(flights.flights(small, 1))
    assert json.loads(flights.encode(7, flight)) == {"id": 7, **flight}


def test_the_package_has_336_776_flights() -> None:
    archive = flights.archive()
    assert flights.count(archive) == 336_776
    first = next(flights.flights(archive, 1))
    assert (first["carrier"], first["flight"], first["origin"], first["dest"]) == ("UA", 1545, "EWR", "IAH")


def test_without_the_package_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(flights, "distribution", absent)
    with pytest.raises(flights.NoData, match="make setup"):
        flights.archive()
