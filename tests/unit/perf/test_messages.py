"""The messages of a load are reproducible, and differ only in the requested ways."""

from __future__ import annotations

from escrowmq.perf.messages import LoadMessage, Variety, messages

VARIED = Variety(spread=40, message_ids=True, correlation_ids=True, timestamps=True, headers=True)


def made(variety: Variety, count: int = 2000, size: int = 100) -> list[LoadMessage]:
    return list(messages(variety, size, count))


def test_the_same_arguments_give_the_same_messages() -> None:
    assert made(VARIED) == made(VARIED)


def test_another_seed_gives_other_messages() -> None:
    ours = {message.message_id for message in messages(VARIED, 100, 100, seed=1)}
    theirs = {message.message_id for message in messages(VARIED, 100, 100, seed=2)}
    assert not ours & theirs


def test_uniform_messages_have_no_property_and_one_size() -> None:
    assert {(m.message_id, m.correlation_id, m.timestamp, m.headers is None, len(m.body)) for m in made(Variety())} == {
        (None, None, None, True, 100)
    }


def test_bodies_differ_after_the_space_for_a_time() -> None:
    found = made(Variety())
    assert {message.body[:8] for message in found} == {bytes(8)}
    assert len({message.body for message in found}) == len(found)


def test_a_body_that_cannot_hold_a_time_is_zero() -> None:
    assert made(Variety(), count=1, size=3)[0].body == bytes(3)


def test_sizes_are_spread_over_the_whole_range() -> None:
    assert {len(message.body) for message in made(Variety(spread=40), count=5000)} == set(range(60, 141))


def test_message_ids_and_correlation_ids_have_36_characters_and_never_repeat() -> None:
    found = made(VARIED)
    ids = [message.message_id for message in found] + [message.correlation_id for message in found]
    assert len(set(ids)) == len(ids)
    assert {len(name or "") for name in ids} == {36}


def test_two_of_three_header_entries_differ() -> None:
    tables = [message.headers or {} for message in made(VARIED)]
    assert {len({table[name] for table in tables}) for name in ("traceparent", "sequence")} == {len(tables)}
    assert {table["service"] for table in tables} == {"orders"}
    assert {len(table) for table in tables} == {3}


def test_the_timestamp_advances_every_thousand_messages() -> None:
    found = [message.timestamp for message in made(VARIED)]
    assert found == [found[0]] * 1000 + [(found[0] or 0) + 1] * 1000


def test_only_messages_that_differ_in_nothing_are_uniform() -> None:
    assert Variety().uniform
    assert not Variety(headers=True).uniform
