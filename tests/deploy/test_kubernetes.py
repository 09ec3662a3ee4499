"""The Kubernetes manifest: what its fields must say, and that the API of Kubernetes knows them."""

import importlib
import importlib.util
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmc_mcp.config.load import load, parse_flags

from ..support.workspace import require
from .image import REPOSITORY

MANIFEST = REPOSITORY / "deploy/kubernetes/llmc-mcp.yaml"
OBJECTS: list[dict[str, Any]] = list(yaml.safe_load_all(MANIFEST.read_text()))
_CLOSING_S = 15


def only(kind: str) -> dict[str, Any]:
    """The object of a kind."""
    (found,) = [one for one in OBJECTS if one["kind"] == kind]
    return found


@pytest.fixture
def pod() -> dict[str, Any]:
    return only("Deployment")["spec"]["template"]["spec"]


@pytest.fixture
def settings() -> dict[str, Any]:
    """The configuration that a pod mounts."""
    return tomllib.loads(only("ConfigMap")["data"]["llmc.toml"])["mcp"]


def test_the_api_of_kubernetes_knows_every_field() -> None:
    require(importlib.util.find_spec("kubernetes_validate") is not None, "pip install kubernetes-validate==1.37.0")
    kubernetes_validate: Any = importlib.import_module("kubernetes_validate")
    version = kubernetes_validate.latest_version()
    for one in OBJECTS:
        kubernetes_validate.validate(one, version, strict=True)
    broken = {**only("PodDisruptionBudget"), "spec": {"maxUnavailabel": 1}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, version, strict=True)


def test_everything_belongs_together() -> None:
    labels = {"app.kubernetes.io/name": "llmc-mcp"}
    deployment = only("Deployment")
    assert deployment["spec"]["replicas"] >= 2
    assert deployment["spec"]["template"]["metadata"]["labels"] == labels
    for selector in (
        deployment["spec"]["selector"]["matchLabels"],
        only("Service")["spec"]["selector"],
        only("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        only("NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
    ):
        assert selector == labels
    claimed = {one["persistentVolumeClaim"]["claimName"] for one in _volumes() if "persistentVolumeClaim" in one}
    assert claimed == {only("PersistentVolumeClaim")["metadata"]["name"]}
    assert only("PersistentVolumeClaim")["spec"]["accessModes"] == ["ReadWriteMany"]  # all replicas have the same files


def _volumes() -> list[dict[str, Any]]:
    return only("Deployment")["spec"]["template"]["spec"]["volumes"]


def test_a_pod_has_the_time_to_drain_that_its_configuration_takes(
    pod: dict[str, Any], settings: dict[str, Any]
) -> None:
    limits, (container,) = settings["limits"], pod["containers"]
    assert pod["terminationGracePeriodSeconds"] >= limits["drain_notice"] + limits["drain_timeout"] + _CLOSING_S
    ready = container["readinessProbe"]
    assert ready["httpGet"]["path"] == "/ready"
    assert (
        ready["periodSeconds"] * ready["failureThreshold"] < limits["drain_notice"]
    )  # noticed before calls are refused
    assert container["livenessProbe"]["httpGet"]["path"] == "/health"  # a database that is away restarts nobody


def test_secrets_are_referred_to_and_every_pod_has_an_address_of_its_own(pod: dict[str, Any]) -> None:
    variables = {one["name"]: one for one in pod["containers"][0]["env"]}
    for name in ("LLMC_MCP_TOKEN", "LLMC_MCP_STORE_URL"):
        assert "secretKeyRef" in variables[name]["valueFrom"]
    assert not [one for one in OBJECTS if one["kind"] == "Secret"]
    names = list(variables)
    assert names.index("POD_IP") < names.index("LLMC_MCP_SERVER_REPLICA_URL")  # a variable refers to earlier ones only
    assert variables["LLMC_MCP_SERVER_REPLICA_URL"]["value"] == "http://$(POD_IP):8080"


def test_a_pod_is_what_the_standard_restricted_admits(pod: dict[str, Any]) -> None:
    (container,) = pod["containers"]
    security = container["securityContext"]
    assert (security["allowPrivilegeEscalation"], security["readOnlyRootFilesystem"]) == (False, True)
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    assert not pod["automountServiceAccountToken"]
    mounted = {one["mountPath"] for one in container["volumeMounts"]}
    assert {"/workspace", "/app/.llmc", "/tmp", "/app/llmc.toml"} == mounted


def test_the_configuration_of_the_pods_loads_without_a_word(tmp_path: Path) -> None:
    (tmp_path / "llmc.toml").write_text(only("ConfigMap")["data"]["llmc.toml"])
    flags, _ = parse_flags(["--config", str(tmp_path / "llmc.toml")])
    loaded = load(flags, environ={"LLMC_ROOT": "/app", "HOME": str(tmp_path)}, directory="/")
    assert [loaded.notices, loaded.idle, loaded.ignored, loaded.refusals] == [[], [], [], []]
    assert (loaded.roots, loaded.config.server.transport) == (["/workspace"], "http")
