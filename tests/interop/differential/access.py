"""A user with few permissions: refused operations, and the texts of the errors."""

from __future__ import annotations

from typing import Final

import pika

from tests.interop.differential.script import Script

USER: Final = "limited"
CONFIGURE: Final = "^(mine|amq[.]gen).*"
WRITE: Final = "^(mine|amq[.]gen|amq[.]default|writable|amq[.]topic).*"
READ: Final = "^(mine|amq[.]gen|readable|amq[.]topic).*"
TOPIC_WRITE: Final = "^allowed"
TOPIC_READ: Final = "^(allowed|[*]|#)"


def permissions(s: Script) -> None:
    for name in ("readable", "writable", "other"):
        s.fresh().queue_declare(name)
        s.fresh().exchange_declare(name)
    u = Script("mine", s.port, USER, USER)
    u.step("declare mine", lambda ch: ch.queue_declare("mine"))
    u.step("declare another's", lambda ch: ch.queue_declare("other"))
    u.step("declare new", lambda ch: ch.queue_declare("new"))
    u.step("declare passively", lambda ch: ch.queue_declare("other", passive=True))
    u.step("declare server-named", lambda ch: ch.queue_declare("", exclusive=True))
    u.step("delete", lambda ch: ch.queue_delete("other"))
    u.step("delete what is not there", lambda ch: ch.queue_delete("none"))
    u.step("purge", lambda ch: ch.queue_purge("other"))
    u.step("purge readable", lambda ch: ch.queue_purge("readable"))
    u.step("consume", lambda ch: ch.basic_consume("other", print))
    u.step("consume readable", lambda ch: ch.basic_consume("readable", print, consumer_tag="t"))
    u.step("get", lambda ch: ch.basic_get("other"))
    u.step("get what is not there", lambda ch: ch.basic_get("none"))
    u.step("exchange", lambda ch: ch.exchange_declare("new"))
    u.step("exchange of its own", lambda ch: ch.exchange_declare("mine.x"))
    u.step("exchange passively", lambda ch: ch.exchange_declare("other", passive=True))
    u.step("delete exchange", lambda ch: ch.exchange_delete("other"))
    u.step(
        "alternate, not writable", lambda ch: ch.exchange_declare("mine.a", arguments={"alternate-exchange": "other"})
    )
    u.step("alternate", lambda ch: ch.exchange_declare("mine.a", arguments={"alternate-exchange": "writable"}))
    u.step(
        "dead-letter exchange, not writable",
        lambda ch: ch.queue_declare("mine.q", arguments={"x-dead-letter-exchange": "other"}),
    )
    u.step(
        "dead-letter exchange", lambda ch: ch.queue_declare("mine.q", arguments={"x-dead-letter-exchange": "writable"})
    )
    u.step("bind, source not readable", lambda ch: ch.queue_bind("mine", "writable", "k"))
    u.step("bind, queue not writable", lambda ch: ch.queue_bind("other", "readable", "k"))
    u.step("bind", lambda ch: ch.queue_bind("mine", "readable", "k"))
    u.step("unbind, queue not writable", lambda ch: ch.queue_unbind("other", "readable", "k"))
    u.step("bind exchange, destination", lambda ch: ch.exchange_bind("other", "readable"))
    u.step("bind exchange, source", lambda ch: ch.exchange_bind("writable", "other"))
    u.step("bind exchange", lambda ch: ch.exchange_bind("writable", "readable"))
    u.step("unbind exchange", lambda ch: ch.exchange_unbind("writable", "readable"))
    u.step("publish", lambda ch: ch.basic_publish("other", "k", b""))
    u.step("publish to what is not there", lambda ch: ch.basic_publish("none", "k", b""))
    u.step("publish writable", lambda ch: ch.basic_publish("writable", "k", b""))
    u.step("publish to any queue", lambda ch: ch.basic_publish("", "other", b"m"))
    s.say("arrived", s.drain("other"))
    u.step("publish in a transaction", lambda ch: (ch.tx_select(), ch.basic_publish("other", "k", b"")))
    u.step("topic", lambda ch: ch.basic_publish("amq.topic", "allowed.k", b""))
    u.step("topic refused", lambda ch: ch.basic_publish("amq.topic", "refused.k", b""))
    u.step(
        "topic, a copy refused",
        lambda ch: ch.basic_publish("amq.topic", "allowed.k", b"", pika.BasicProperties(headers={"CC": ["refused.k"]})),
    )
    u.step("bind topic", lambda ch: ch.queue_bind("mine", "amq.topic", "allowed.#"))
    u.step("bind topic, refused", lambda ch: ch.queue_bind("mine", "amq.topic", "refused.#"))
    u.step("bind exchange to topic, refused", lambda ch: ch.exchange_bind("mine.x", "amq.topic", "refused"))
    u.step("user-id of another", lambda ch: ch.basic_publish("", "mine", b"", pika.BasicProperties(user_id="guest")))
    for name in ("mine.x", "mine.a"):
        u.fresh().exchange_delete(name)
    for name in ("mine", "mine.q"):
        u.fresh().queue_delete(name)
    s.lines += u.lines
    u.close()
    for name in ("readable", "writable", "other"):
        s.fresh().queue_delete(name)
        s.fresh().exchange_delete(name)


SCENARIOS = (permissions,)
