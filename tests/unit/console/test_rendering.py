"""Pages escape whatever is put into them, and show units as people write them."""

from __future__ import annotations

from pathlib import Path

import jinja2
import pytest

from escrowmq.console import rendering
from escrowmq.console.rendering import age, environment, fields, moment, number, render


def test_everything_is_escaped() -> None:
    page = render("failure.html", title="<b>", text='<script>alert("1")</script>')
    assert "<script>alert" not in page
    assert "&lt;script&gt;" in page


def test_a_template_with_a_name_that_it_does_not_get_fails() -> None:
    with pytest.raises(jinja2.UndefinedError):
        render("failure.html", title="t")


def test_quantities_are_for_people() -> None:
    assert (age(None), age(0), age(90), age(7200)) == ("", "0 s", "1.5 min", "2 h")
    assert (number(None), number(1234567)) == ("–", "1,234,567")
    assert moment(1_700_000_000_123_456) == "2023-11-14 22:13:20.123"


def test_the_fields_of_a_record_are_on_one_line_and_long_ones_are_cut() -> None:
    assert fields({"queue": "q", "positions": [[1, 2]]}) == "queue=q positions=[[1, 2]]"
    assert len(fields({"a": "x" * 500})) == len("a=") + 120


def test_every_template_compiles_and_vendored_files_exist() -> None:
    made = environment()
    assert len([made.get_template(name) for name in made.list_templates()]) > 10
    vendored = Path(rendering.__file__).with_name("static") / "vendor"
    assert all((vendored / name).stat().st_size for name in rendering.VENDORED.values())
