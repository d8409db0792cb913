"""mqadmin, RocketMQ's tool for operators, works with the broker unmodified. `make jms` installs it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.interop.java_clients import needs
from tests.interop.rocketmq.brokers import ServedBroker
from tests.interop.scenarios import Scenarios

pytestmark = [pytest.mark.interop, needs("rocketmq-tools", "rocketmq")]


class Operator:
    """Somebody who runs mqadmin, with names of topics and groups that no other test uses."""

    def __init__(self, machine: Scenarios, broker: ServedBroker) -> None:
        self._machine = machine
        self._ports = broker.ports
        self.broker = broker
        self.topic, self.group, self.producers = (f"{kind}-{uuid4().hex}" for kind in ("topic", "group", "producers"))

    @property
    def address(self) -> str:
        """The address of the broker, as distinct from the name server's."""
        return f"127.0.0.1:{self._ports.broker_port}"

    def call(self, scenario: str, *arguments: str) -> None:
        """Run a scenario of the runner."""
        self._machine.call(scenario, self._ports.name_server, *arguments)

    def run(self, line: str, *wanted: str) -> str:
        """Run one command, whose output must contain all of `wanted`. <topic>, <group>, <producers> and <broker> are
        replaced in both. Return the output.
        """
        output = self._machine.call("mqadmin", self._ports.name_server, *self._named(line).split())
        for part in map(self._named, wanted):
            assert part in output, f"mqadmin {line} does not print {part!r}:\n{output}"
        return output

    def _named(self, text: str) -> str:
        names = {"topic": self.topic, "group": self.group, "producers": self.producers, "broker": self.address}
        return re.sub("<([a-z]+)>", lambda found: names[found[1]], text)


@pytest.fixture
def operator(classic_clients: Scenarios, grpc_broker: ServedBroker) -> Iterator[Operator]:
    found = Operator(classic_clients, grpc_broker)
    found.run("updateTopic -b <broker> -t <topic> -r 2 -w 2", "create topic to <broker> success")
    yield found
    found.call("signCommands")


def test_topics_and_groups_are_managed(operator: Operator) -> None:
    operator.run("updateTopic -c DefaultCluster -t <topic>-tx -a +message.type=TRANSACTION", "success")
    operator.run("topicList", "<topic>", "<topic>-tx", "RMQ_SYS_TRANS_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC")
    operator.run("topicRoute -t <topic>", '"readQueueNums":2')
    operator.run("topicStatus -t <topic>", "escrowmq")
    operator.run("allocateMQ -t <topic> -i one,two", '"one"', '"two"')
    operator.run("updateSubGroup -b <broker> -g <group> -r 3", "success")
    operator.run("getConsumerConfig -g <group>", "retryMaxTimes                           =  3")
    operator.run("updateTopic -b <broker> -t <topic> -r 1 -w 1", "topic <topic> has 2 queues and cannot shrink to 1")
    operator.run("updateTopicPerm -b <broker> -t <topic> -p 4", "permissions of a topic are not supported")
    deleted = operator.run("deleteSubGroup -c DefaultCluster -g <group>", "success")
    assert "Exception" not in deleted
    operator.run("deleteTopic -c DefaultCluster -t <topic>", "success")
    assert operator.topic not in operator.run("topicList").replace(f"{operator.topic}-tx", "")


def test_messages_are_sent_read_and_found(operator: Operator) -> None:
    operator.call("comeOnline", operator.producers, operator.group, operator.topic)
    operator.call("goOffline")
    sent = operator.run("checkMsgSendRT -t <topic> -a 2 -s 10", "Avg RT")
    assert sent.count("true") == 2
    printed = operator.run("printMsg -t <topic> -d true", "BODY: online", "MSGID:")
    (unique,) = re.findall(r"MSGID: (\w+)[^\n]*BODY: online", printed)
    operator.run(f"queryMsgByUniqueKey -t <topic> -i {unique}", "<topic>", "Message Body Path")
    found = operator.run("queryMsgByOffset -t <topic> -b escrowmq -i 0 -o 0", "<topic>")
    (offset_id,) = re.findall(r"OffsetID: +(\w+)", found)
    operator.run(f"queryMsgById -t <topic> -i {offset_id}", "Topic:               <topic>")
    operator.run("consumeMessage -t <topic> -g <group>-c -c 3", "MSGID")


@pytest.mark.rule("HALF-10")
def test_half_messages_and_decisions_are_printed(operator: Operator) -> None:
    operator.call("transactionsAreDecidedByTheirProducer")
    operator.run("printMsg -t RMQ_SYS_TRANS_OP_HALF_TOPIC -d true", "TRANSACTION_STATE=COMMITTED")
    operator.run("topicStatus -t RMQ_SYS_TRANS_HALF_TOPIC", "escrowmq")
    operator.run("topicStatus -t TRANS_CHECK_MAX_TIME_TOPIC", "escrowmq")


@pytest.mark.rule("GRP-5")
def test_progress_is_shown_and_reset(operator: Operator) -> None:
    operator.call("comeOnline", operator.producers, operator.group, operator.topic)
    connected = operator.run("consumerConnection -g <group>", "Below is subscription", "<topic>")
    (client,) = re.findall(r"\S+@i-\S+", connected)
    operator.run(f"consumerStatus -g <group> -i {client}", "#Consumer Subscription#", "<topic>")
    operator.run("producerConnection -g <producers> -t <topic>", "JAVA")
    operator.run("producer -b <broker>", "<producers>")
    operator.call("goOffline")
    operator.run("consumerProgress -g <group>", "Consume Diff Total: 0")
    operator.run("resetOffsetByTime -g <group> -t <topic> -s 0", "escrowmq")
    operator.run("consumerProgress -g <group> -t <topic>", "Consume Diff Total: 1")
    operator.run("skipAccumulatedMessage -g <group> -t <topic>", "escrowmq")
    operator.run("consumerProgress -g <group> -t <topic>", "Consume Diff Total: 0")
    operator.run("cloneGroupOffset -s <group> -d <group>-copy -t <topic> -o true", "success")
    operator.run("brokerConsumeStats -b <broker>", "<group>-copy")


def test_the_broker_is_described(operator: Operator) -> None:
    operator.run("clusterList", "DefaultCluster", "V5_3_3")
    operator.run("brokerStatus -b <broker>", "brokerActive                    : true")
    operator.run("statsAll -t <topic>", "<topic>")
    operator.run("getBrokerConfig -b <broker>", "transactionCheckMax")
    operator.run("getNamesrvConfig", "brokerName")


def test_commands_are_signed_with_an_access_key(operator: Operator) -> None:
    access_key, secret_key = operator.broker.add_key("guest")
    operator.call("signCommands", access_key, secret_key)
    operator.run("topicStatus -t <topic>", "escrowmq")
    operator.call("signCommands", access_key, "wrong")
    assert "escrowmq" not in operator.run("topicStatus -t <topic>")
