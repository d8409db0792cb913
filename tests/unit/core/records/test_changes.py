"""Records about topology and access are decoded as they were encoded."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.messages.values import canonical_table
from escrowmq.core.records.changes import Timestamp, decode_change, encode_change

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3) | st.sampled_from(["$bytes", "$text", "$table"]), inner, max_size=2)
    ),
    max_leaves=8,
)


class TestChanges:
    @given(st.dictionaries(st.text(max_size=3) | st.sampled_from(["$bytes", "$text", "$table"]), values, max_size=3))
    def test_any_table_is_decoded_as_it_was_encoded(self, table: dict[str, Any]) -> None:
        assert decode_change(encode_change(arguments=table, name="q")) == {"arguments": table, "name": "q"}

    @pytest.mark.parametrize("table", [{"$bytes": "zz"}, {"$bytes": 1}, {"$text": []}, {"$table": {"$table": 1}}])
    def test_a_clients_table_cannot_imitate_an_encoded_value(self, table: dict[str, Any]) -> None:
        assert decode_change(encode_change(arguments={"x": table})) == {"arguments": {"x": table}}

    def test_times_and_decimals_keep_their_types(self) -> None:
        """The arguments of a binding to a headers exchange are compared by type too."""
        table = {"t": Timestamp(7), "d": Decimal("1.50"), "i": 7, "inner": [Timestamp(8)]}
        read = decode_change(encode_change(arguments=table))["arguments"]
        assert canonical_table(read) == canonical_table(table)
        assert canonical_table(read) != canonical_table({**table, "t": 7})

    def test_text_that_is_not_valid_utf8_survives(self) -> None:
        assert decode_change(encode_change(name="\udc80")) == {"name": "\udc80"}

    def test_a_change_is_plain_json(self) -> None:
        assert (
            encode_change(name="ü", arguments={"x": b"\x01"})
            == '{"name":"ü","arguments":{"x":{"$bytes":"01"}}}'.encode()
        )
