"""The table of methods covers the service, and names operations that have a rule."""

from __future__ import annotations

import pytest

from escrowmq.core.access.table import TABLE
from escrowmq.wire.rocketmq.grpc.methods import METHODS, SERVICE, UnaryMethod


@pytest.mark.rule("SEC-1")
@pytest.mark.parametrize("path", METHODS)
def test_every_method_has_operations_with_a_rule(path: bytes) -> None:
    assert path.startswith(SERVICE)
    assert all(operation in TABLE for operation in METHODS[path].operations)


@pytest.mark.parametrize("path", METHODS)
def test_requests_and_responses_have_the_names_of_their_methods(path: bytes) -> None:
    method, name = METHODS[path], path.removeprefix(SERVICE).decode()
    if isinstance(method, UnaryMethod):
        assert method.request.DESCRIPTOR.name == name + "Request"
        assert method.response.DESCRIPTOR.name == name + "Response"
