"""Tags that are given to users."""

from __future__ import annotations

import pytest

from escrowmq.cli.users import warn_of_unknown


def test_a_tag_that_gives_no_rights_is_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    warn_of_unknown(["monitoring", "adminstrator"])
    assert capsys.readouterr().err == (
        "warning: the broker knows no tag 'adminstrator', so it gives no rights; tags that do: administrator, "
        "monitoring, management, policymaker\n"
    )


def test_tags_that_give_rights_are_not_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    warn_of_unknown(["administrator", "monitoring", "management", "policymaker"])
    assert capsys.readouterr().err == ""
