"""The metrics, read by the official parser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from escrowmq.admin.http.metrics import FAMILIES
from escrowmq.wire.amqp091 import spec
from tests.unit.admin.http.sites import HttpSite
from tests.unit.admin.standings import standing
from tests.unit.sources import ROOT
from tests.unit.wire.amqp091.clients import pair
from tests.unit.wire.amqp091.test_dtx_methods import prepared

DASHBOARD = ROOT / "deploy" / "grafana" / "escrowmq.json"
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
# The metrics in the expressions of the overview dashboard that RabbitMQ publishes for Grafana, but those of Erlang.
OF_RABBITMQS_OVERVIEW = """
    rabbitmq_build_info rabbitmq_identity_info rabbitmq_queue_messages_ready rabbitmq_queue_messages_unacked
    rabbitmq_global_messages_received_total rabbitmq_global_messages_received_confirm_total
    rabbitmq_global_messages_confirmed_total rabbitmq_global_messages_routed_total
    rabbitmq_global_messages_unroutable_dropped_total rabbitmq_global_messages_unroutable_returned_total
    rabbitmq_global_messages_delivered_total rabbitmq_global_messages_redelivered_total
    rabbitmq_global_messages_delivered_consume_auto_ack_total rabbitmq_global_messages_acknowledged_total
    rabbitmq_global_messages_delivered_consume_manual_ack_total rabbitmq_global_messages_get_empty_total
    rabbitmq_global_messages_delivered_get_auto_ack_total rabbitmq_global_messages_delivered_get_manual_ack_total
    rabbitmq_global_publishers rabbitmq_global_consumers rabbitmq_connections rabbitmq_channels rabbitmq_queues
    rabbitmq_consumers rabbitmq_connections_opened_total rabbitmq_connections_closed_total
    rabbitmq_channels_opened_total rabbitmq_channels_closed_total rabbitmq_queues_declared_total
    rabbitmq_queues_created_total rabbitmq_queues_deleted_total rabbitmq_process_resident_memory_bytes
    rabbitmq_resident_memory_limit_bytes rabbitmq_disk_space_available_bytes
    rabbitmq_disk_space_available_limit_bytes rabbitmq_process_open_fds rabbitmq_process_max_fds
""".split()  # noqa: SIM905 - a list of lines would be longer

OF_OLDER_OVERVIEWS = """
    rabbitmq_channel_consumers rabbitmq_channel_messages_published_total rabbitmq_channel_messages_confirmed_total
    rabbitmq_channel_messages_unconfirmed rabbitmq_channel_messages_unroutable_dropped_total
    rabbitmq_channel_messages_unroutable_returned_total rabbitmq_channel_messages_delivered_total
    rabbitmq_channel_messages_delivered_ack_total rabbitmq_channel_messages_redelivered_total
    rabbitmq_channel_messages_acked_total rabbitmq_channel_get_total rabbitmq_channel_get_ack_total
    rabbitmq_channel_get_empty_total rabbitmq_queue_messages_published_total rabbitmq_process_open_tcp_sockets
    rabbitmq_process_max_tcp_sockets
""".split()  # noqa: SIM905
"""Other metrics, of the overview dashboard of RabbitMQ 3.8 and 3.9."""

Samples = dict[str, list[tuple[dict[str, str], float]]]


def worked() -> HttpSite:
    """Return a site whose broker has done some of everything."""
    server, client = pair()
    prepared(server, client, 2)
    client.publish(2, "q", b"1", b"2", b"3")
    client.publish(2, "nowhere", b"4")
    client.open_channel(3)
    client.get(3, "q")
    client.get(3, "q", no_ack=True)
    client.send(3, spec.BasicAck(1))
    client.get(3, "q")
    return HttpSite(server)


def scraped(site: HttpSite, target: str = "/metrics") -> Samples:
    """Return the samples of a scrape by name, with labels and values."""
    answer = site.get(target)
    assert answer.status == 200
    found: Samples = {}
    for family in text_string_to_metric_families(answer.body.decode()):
        assert family.documentation
        assert family.type != "unknown"
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def value(samples: Samples, name: str, **labels: str) -> float:
    (found,) = [number for given, number in samples[name] if given == labels]
    return found


def test_sums_are_those_of_the_counters() -> None:
    samples = scraped(worked())
    assert value(samples, "rabbitmq_global_messages_received_total", protocol="amqp091") == 6
    assert value(samples, "rabbitmq_global_messages_unroutable_dropped_total", protocol="amqp091") == 1
    assert value(samples, "rabbitmq_global_messages_routed_total") == 3
    assert value(samples, "rabbitmq_global_messages_delivered_get_manual_ack_total") == 2
    assert value(samples, "rabbitmq_global_messages_delivered_get_auto_ack_total") == 1
    assert value(samples, "rabbitmq_global_messages_delivered_consume_manual_ack_total") == 0
    assert value(samples, "rabbitmq_global_messages_delivered_total") == 3
    assert value(samples, "rabbitmq_global_messages_acknowledged_total") == 1
    assert value(samples, "rabbitmq_queue_messages_unacked") == 1
    assert value(samples, "escrowmq_branches_in_doubt") == 2
    assert value(samples, "escrowmq_branches_total", kind="xa", event="prepared") == 2
    assert value(samples, "escrowmq_vhost_messages_arrived_total", vhost="/") == 3
    assert value(samples, "rabbitmq_connections_closed_total") == 3
    assert value(samples, "rabbitmq_alarms_free_disk_space_watermark") == 1
    assert value(samples, "rabbitmq_alarms_memory_used_watermark") == 0
    assert value(samples, "escrowmq_blocked_publishers") == 1


def test_every_metric_of_rabbitmqs_overview_dashboard_exists() -> None:
    assert not {*OF_RABBITMQS_OVERVIEW, *OF_OLDER_OVERVIEWS} - scraped(worked()).keys()


def test_sums_over_channels_are_those_of_the_counters() -> None:
    samples = scraped(worked())
    assert value(samples, "rabbitmq_channel_messages_published_total") == 6
    assert value(samples, "rabbitmq_channel_messages_unroutable_dropped_total") == 1
    assert value(samples, "rabbitmq_queue_messages_published_total") == 3
    assert value(samples, "rabbitmq_channel_get_ack_total") == 2
    assert value(samples, "rabbitmq_channel_get_total") == 1
    assert value(samples, "rabbitmq_channel_messages_delivered_ack_total") == 0
    assert value(samples, "rabbitmq_channel_messages_acked_total") == 1
    assert value(samples, "rabbitmq_channel_messages_unconfirmed") == 0


def test_the_identity_has_the_labels_that_dashboards_join() -> None:
    ((labels, number),) = scraped(worked())["rabbitmq_identity_info"]
    assert number == 1
    assert labels == {
        "rabbitmq_node": "escrowmq@h",
        "rabbitmq_cluster": "escrowmq@h",
        "rabbitmq_cluster_permanent_id": "0123",
        "rabbitmq_endpoint": "aggregated",
    }


def test_the_times_of_syncs_are_a_histogram() -> None:
    samples = scraped(worked())
    buckets = {labels["le"]: number for labels, number in samples["escrowmq_journal_sync_seconds_bucket"]}
    assert buckets == {"1e-06": 0, "2e-06": 1, "4e-06": 3, "+Inf": 6}
    assert value(samples, "escrowmq_journal_sync_seconds_sum") == 3
    assert value(samples, "escrowmq_journal_sync_seconds_count") == 6


def test_details_are_given_only_of_families_that_are_asked_for() -> None:
    site = worked()
    assert scraped(site, "/metrics/detailed").keys() == {"rabbitmq_identity_info", "rabbitmq_build_info"}
    samples = scraped(site, "/metrics/detailed?family=queue_coarse_metrics&family=escrowmq_queue_metrics")
    assert value(samples, "rabbitmq_detailed_queue_messages", vhost="/", queue="q") == 1
    assert value(samples, "escrowmq_detailed_queue_messages_arrived_total", vhost="/", queue="q") == 3
    assert "rabbitmq_detailed_queue_consumers" not in samples


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_family_is_parsed_and_can_be_limited_to_virtual_hosts(family: str) -> None:
    site = worked()
    assert len(scraped(site, f"/metrics/detailed?family={family}")) > 2
    assert len(scraped(site, f"/metrics/detailed?family={family}&vhost=none")) == 2


def test_names_with_quotes_and_backslashes_are_escaped() -> None:
    server, client = pair()
    client.declare(1, 'a"b\\c')
    samples = scraped(HttpSite(server), "/metrics/detailed?family=queue_consumer_count")
    assert value(samples, "rabbitmq_detailed_queue_consumers", vhost="/", queue='a"b\\c') == 0


def expressions(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        for panel in json.loads(text)["panels"]:
            for target in panel.get("targets", ()):
                yield target["expr"]
    else:
        yield from re.findall(r"^ +expr: (.+)$", text, re.MULTILINE)


@pytest.mark.parametrize("path", [DASHBOARD, ALERTS], ids=lambda path: path.name)
def test_every_expression_of_ours_uses_metrics_that_exist(path: Path) -> None:
    site = worked()
    site.broker.process.standing = standing()
    known = scraped(site).keys() | {"up"}
    found = list(expressions(path))
    assert len(found) >= 5
    for expression in found:
        names = set(re.findall(r"\b(?:rabbitmq|escrowmq)_[a-z_]+\b", expression))
        assert names or "up" in expression, expression
        assert not names - known, expression


def test_a_leader_on_a_replicated_log_shows_its_epoch_and_what_it_appended() -> None:
    site = HttpSite()
    assert "escrowmq_replica_epoch" not in scraped(site)
    site.broker.process.standing = standing(silent=True)
    samples = scraped(site)
    names = ("leads", "epoch", "silent", "appends_total", "append_seconds_total", "engine_in_sync", "take_overs")
    assert [value(samples, f"escrowmq_replica_{name}") for name in names] == [1, 4, 1, 9, 0.5, 2, 1]
