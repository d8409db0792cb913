"""The compose files and manifests of deploy/replication: what they name exists, and they agree with each other."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from escrowmq.config.sources import FILE_SUFFIX, variables
from escrowmq.replica.engines.address import EngineAddress
from tests.engines.nats_nodes import PROGRAM
from tests.unit.sources import ROOT

FOLDER = ROOT / "deploy" / "replication"
KUBERNETES = FOLDER / "kubernetes"
COMPOSE = ["kafka", "nats"]


def compose(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    return found


def manifest(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((KUBERNETES / f"{name}.yaml").read_text(encoding="utf-8"))
    return found


def literals() -> dict[str, str]:
    (generated,) = manifest("kustomization")["configMapGenerator"]
    return dict(each.split("=", 1) for each in generated["literals"])


def brokers(name: str) -> dict[str, Any]:
    return {key: each for key, each in compose(name)["services"].items() if key.startswith("broker-")}


@pytest.mark.parametrize("name", COMPOSE)
def test_three_brokers_and_three_nodes_have_volumes_and_ports_of_their_own(name: str) -> None:
    found = compose(name)
    assert len(found["services"]) == 6
    volumes = [each.split(":")[0] for service in found["services"].values() for each in service["volumes"]]
    own = [volume for volume in volumes if not volume.startswith("./")]
    assert sorted(own) == sorted(found["volumes"])
    ports = [port.rsplit(":", 1)[0] for service in brokers(name).values() for port in service["ports"]]
    assert len(set(ports)) == len(ports) == 6
    assert all(port.startswith("127.0.0.1:") for port in ports)


@pytest.mark.parametrize("name", COMPOSE)
def test_the_url_names_the_nodes_of_the_compose_file(name: str) -> None:
    found = compose(name)
    for service in brokers(name).values():
        address = EngineAddress.parse(service["environment"]["ESCROWMQ_REPLICATION_URL"])
        hosts = {host.split(":")[0] for host in address.hosts}
        assert hosts == {key for key in found["services"] if not key.startswith("broker-")}
        assert hosts == set(service["depends_on"])


@pytest.mark.parametrize("name", COMPOSE)
def test_each_broker_advertises_the_port_at_which_it_is_reached(name: str) -> None:
    names = set()
    for key, service in brokers(name).items():
        environment = service["environment"]
        assert environment["ESCROWMQ_REPLICATION_NODE"] == key == service["hostname"]
        port = environment["ESCROWMQ_REPLICATION_ADVERTISED_URL"].rsplit(":", 1)[1]
        assert f"127.0.0.1:{port}:5672" in service["ports"]
        names.add(key)
    assert len(names) == 3


@pytest.mark.parametrize("name", COMPOSE)
def test_what_is_built_or_mounted_exists(name: str) -> None:
    found = compose(name)
    for service in found["services"].values():
        for volume in service["volumes"]:
            if volume.startswith("./"):
                assert (FOLDER / volume.split(":")[0]).is_file()
        if "build" in service:
            context = FOLDER / service["build"]["context"]
            assert (context / service["build"]["dockerfile"]).is_file()
    assert found["secrets"]["password"]["file"] == "../compose/password"


@pytest.mark.parametrize("name", COMPOSE)
def test_the_variables_are_keys_of_the_configuration(name: str) -> None:
    used = {key for service in brokers(name).values() for key in service["environment"]} | literals().keys()
    environment = manifest("brokers")["spec"]["template"]["spec"]["containers"][0]["env"]
    used |= {each["name"] for each in environment}
    assert {key.removesuffix(FILE_SUFFIX) for key in used} <= variables().keys()


def test_the_nodes_of_kafka_differ_and_vote_for_each_other() -> None:
    nodes = {key: each for key, each in compose("kafka")["services"].items() if key.startswith("kafka-")}
    voters = nodes["kafka-1"]["environment"]["KAFKA_CONTROLLER_QUORUM_VOTERS"].split(",")
    expected = [f"{each['environment']['KAFKA_NODE_ID']}@{key}:9093" for key, each in nodes.items()]
    assert sorted(voters) == sorted(expected)
    assert len({each["environment"]["CLUSTER_ID"] for each in nodes.values()}) == 1
    assert len(nodes["kafka-1"]["environment"]["CLUSTER_ID"]) == 22


@pytest.mark.skipif(not PROGRAM.exists(), reason="needs make engines")
def test_nats_accepts_its_configuration() -> None:
    command = [str(PROGRAM), "-t", "-c", str(FOLDER / "nats.conf"), "--name", "nats-1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    routes = re.findall(r"nats://([\w-]+):6222", (FOLDER / "nats.conf").read_text(encoding="utf-8"))
    assert set(routes) == {key for key in compose("nats")["services"] if key.startswith("nats-")}


def test_the_manifests_select_the_pods_that_they_make() -> None:
    brokers = manifest("brokers")["spec"]
    labels = brokers["template"]["metadata"]["labels"]
    assert brokers["selector"]["matchLabels"] == labels
    assert manifest("services")["spec"]["selector"] == labels
    assert manifest("disruption-budget")["spec"]["selector"]["matchLabels"] == labels
    assert manifest("services")["metadata"]["name"] == brokers["serviceName"]
    assert brokers["replicas"] - manifest("disruption-budget")["spec"]["maxUnavailable"] == 2


def test_probes_and_services_name_ports_of_the_container() -> None:
    (container,) = manifest("brokers")["spec"]["template"]["spec"]["containers"]
    ports = {port["name"] for port in container["ports"]}
    probes = [container[kind]["httpGet"] for kind in ("startupProbe", "readinessProbe", "livenessProbe")]
    assert {probe["path"] for probe in probes} == {"/health"}
    assert {probe["port"] for probe in probes} <= ports
    assert {port["targetPort"] for port in manifest("services")["spec"]["ports"]} <= ports


def test_every_mount_has_a_volume() -> None:
    brokers = manifest("brokers")["spec"]
    pod = brokers["template"]["spec"]
    volumes = {each["name"] for each in pod["volumes"]}
    volumes |= {each["metadata"]["name"] for each in brokers["volumeClaimTemplates"]}
    assert {each["name"] for each in pod["containers"][0]["volumeMounts"]} == volumes
    secret = next(each for each in pod["containers"][0]["volumeMounts"] if each["name"] == "password")
    assert literals()["ESCROWMQ_SECURITY_DEFAULT_PASSWORD_FILE"] == f"{secret['mountPath']}/password"


def test_the_url_of_the_manifests_is_one() -> None:
    assert len(EngineAddress.parse(literals()["ESCROWMQ_REPLICATION_URL"]).hosts) == 3


def test_kustomize_accepts_the_manifests(tmp_path: Path) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    command = ["kubectl", "kustomize", str(KUBERNETES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    kinds = [each["kind"] for each in yaml.safe_load_all(done.stdout)]
    assert sorted(kinds) == ["ConfigMap", "Namespace", "PodDisruptionBudget", "Service", "StatefulSet"]
