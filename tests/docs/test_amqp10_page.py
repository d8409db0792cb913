"""The page about AMQP 1.0 names the limits, addresses and sizes that the broker has."""

from __future__ import annotations

import re

from escrowmq.config.config import Config
from escrowmq.wire.amqp10.addresses import LONGEST_NAME, PREFIXES
from escrowmq.wire.amqp10.coordinator import CREDIT
from escrowmq.wire.amqp10.filters import MOST
from escrowmq.wire.amqp10.management.links import CREDIT as REQUESTS
from tests.unit.sources import ROOT

PAGE = (ROOT / "docs" / "guides" / "amqp10.md").read_text(encoding="utf-8")
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20}


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def limits() -> list[tuple[str, str]]:
    """Return setting and value of each row of the table of limits."""
    rows = [row.strip("|").split("|") for row in re.findall(r"^\|.*\|$", section("Limits"), re.MULTILINE)[2:]]
    return [(row[1].strip(), row[2].strip()) for row in rows]


def number(text: str) -> float | bool:
    """Return the value that a cell names."""
    if text in {"true", "false"}:
        return text == "true"
    digits, _, unit = text.partition(" ")
    return int(digits.replace(",", "")) * UNITS.get(unit, 1)


def test_limits_have_the_defaults_of_the_configuration() -> None:
    defaults = Config().limits
    documented = {found[1]: number(value) for setting, value in limits() if (found := re.match("`([a-z_]+)`", setting))}
    assert documented == {key: getattr(defaults, key) for key in documented}
    assert {key for key in documented if key.startswith(("link", "unsettled", "termini", "transaction"))} == {
        key for key in type(defaults).model_fields if key.startswith(("link", "unsettled", "termini", "transaction"))
    }


def test_limits_without_a_setting_are_those_of_the_code() -> None:
    assert [number(value) for setting, value in limits() if setting == "–"] == [
        CREDIT,
        REQUESTS,
        MOST,
        LONGEST_NAME,
        32,
    ]


def test_prefixes_of_addresses_are_in_the_order_in_which_they_are_tried() -> None:
    table = section("Addresses")
    places = [table.index(f"`{prefix}") for prefix, _ in PREFIXES]
    assert places == sorted(places)
