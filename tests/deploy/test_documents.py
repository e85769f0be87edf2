"""The documents that Helm renders from the chart: the API's schemas, and what the chart promises (no server).

``make chart`` renders them; ``test_rendering`` shows that they are those of the chart.
"""

import copy
from typing import Any

import pytest
import yaml
from kubernetes_validate import ValidationError
from kubernetes_validate.utils import validate

from tests.deploy.chart import EXAMPLES, STREAM_APPS, Document, connects, documents, named, pods, selects, values

# The oldest version that Chart.yaml allows, and the newest that is known.
VERSIONS = ("1.30", "1.37")


@pytest.fixture(params=EXAMPLES)
def example(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def found(example: str) -> list[Document]:
    return documents(example)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_document_has_only_fields_of_the_api(found: list[Document], version: str) -> None:
    templates = [yaml.safe_load(item["data"]["executor.yaml"]) for item in found if "executor.yaml" in _data(item)]
    for item in [*found, *templates]:
        validate(item, version, strict=True)


def _data(item: Document) -> dict[str, str]:
    return dict(item.get("data", {}))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "template", "spec", "terminationGraceSeconds"), 5),
        (("spec", "strategy", "type"), 5),
        (("spec", "template", "spec", "containers", 0, "securityContext", "privilegeEscalation"), False),
    ],
)
def test_a_field_that_the_api_does_not_have_is_noticed(path: tuple[str | int, ...], value: object) -> None:
    wrong = copy.deepcopy(next(iter(named(documents("minimal"), "Deployment").values())))
    place: Any = wrong
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(ValidationError):
        validate(wrong, VERSIONS[-1], strict=True)


def test_the_examples_show_every_kind() -> None:
    kinds = {item["kind"] for example in EXAMPLES for item in documents(example)}
    assert kinds == {
        "ConfigMap",
        "CronJob",
        "Deployment",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "Role",
        "RoleBinding",
        "Service",
        "ServiceAccount",
    }


def test_names_are_unique_and_short_enough(found: list[Document]) -> None:
    for kind in {item["kind"] for item in found}:
        for name in named(found, kind):
            assert len(name) <= (52 if kind == "CronJob" else 63)


def test_a_stream_has_one_writer_per_layer_that_ends_before_the_next_one(found: list[Document]) -> None:
    for deployment in named(found, "Deployment").values():
        assert deployment["spec"]["replicas"] == 1
        assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    for job in named(found, "CronJob").values():
        assert job["spec"]["concurrencyPolicy"] == "Forbid"


def test_each_selector_selects_the_pods_that_it_is_for(found: list[Document]) -> None:
    every = list(pods(found))
    for name, deployment in named(found, "Deployment").items():
        chosen = [pod.owner for pod in every if selects(deployment["spec"]["selector"], pod.labels)]
        assert chosen == [f"Deployment {name}"]
    (budget,) = named(found, "PodDisruptionBudget").values()
    chosen = [pod.owner for pod in every if selects(budget["spec"]["selector"], pod.labels)]
    assert chosen == [pod.owner for pod in every if pod.owner.startswith("Deployment ") and pod.layer != "metrics"]
    for service in named(found, "Service").values():
        chosen = [pod.layer for pod in every if selects({"matchLabels": service["spec"]["selector"]}, pod.labels)]
        assert chosen == ["metrics"]
    for policy in named(found, "NetworkPolicy").values():
        assert any(selects(policy["spec"]["podSelector"], pod.labels) for pod in every)


def test_every_volume_exists_is_mounted_and_comes_from_the_release_or_from_the_values(
    example: str, found: list[Document]
) -> None:
    given = values(example)
    authentication = given.get("executors", {}).get("authenticationSecret", {}).get("secretName")
    secrets = {item["secretName"] for item in given.get("secrets", {}).values()} | {authentication}
    maps = named(found, "ConfigMap").keys() | {item["configMapName"] for item in given.get("certificates", {}).values()}
    for pod in pods(found):
        mounted = [mount["name"] for mount in pod.container["volumeMounts"]]
        assert sorted(mounted) == sorted(volume["name"] for volume in pod.spec["volumes"])
        assert len({mount["mountPath"] for mount in pod.container["volumeMounts"]}) == len(mounted)
        for volume in pod.spec["volumes"]:
            for source in volume.get("projected", {}).get("sources", [volume]):
                assert source.get("configMap", {}).get("name") in {*maps, None}
                secret = source.get("secret", {})
                assert secret.get("name", secret.get("secretName")) in {*secrets, None}


def test_a_file_that_a_setting_names_is_mounted(example: str, found: list[Document]) -> None:
    names = [text for text in _texts(values(example)["settings"]) if "/run/secrets/" in text or "/etc/" in text]
    for pod in pods(found):
        files = {
            f"{mount['mountPath']}/{item['path']}"
            for mount in pod.container["volumeMounts"]
            for volume in pod.spec["volumes"]
            if volume["name"] == mount["name"]
            for source in volume.get("projected", {}).get("sources", [])
            for item in next(iter(source.values()))["items"]
        }
        assert {name.removeprefix("file:") for name in names} <= files, pod.owner


def _texts(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for inner in value.values() for text in _texts(inner)]
    return [str(value)]


def test_no_document_has_a_secret(found: list[Document]) -> None:
    assert named(found, "Secret") == {}
    for pod in pods(found):
        for variable in pod.container["env"]:
            assert "secretKeyRef" not in variable.get("valueFrom", {}), "who may exec into the pod would see it"


def test_pods_run_without_root_without_privileges_and_write_to_scratch_only(found: list[Document]) -> None:
    for pod in pods(found):
        assert pod.spec["securityContext"] == {
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "runAsGroup": 1000,
            "fsGroup": 1000,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        assert pod.container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        kinds = {kind for volume in pod.spec["volumes"] for kind in volume if kind != "name"}
        assert kinds <= {"emptyDir", "configMap", "secret", "projected"}
        assert all(volume["emptyDir"]["sizeLimit"] for volume in pod.spec["volumes"] if "emptyDir" in volume)
        writable = [mount["mountPath"] for mount in pod.container["volumeMounts"] if not mount.get("readOnly")]
        assert writable == ["/tmp"]  # noqa: S108 - in the pod


def test_only_drivers_with_executors_reach_the_api_of_kubernetes(found: list[Document]) -> None:
    accounts, bindings = named(found, "ServiceAccount"), named(found, "RoleBinding")
    subjects = {subject["name"] for item in bindings.values() for subject in item["subjects"]}
    assert all(subject["namespace"] == "data" for item in bindings.values() for subject in item["subjects"])
    for binding in bindings.values():
        assert binding["roleRef"]["name"] in named(found, "Role")
    for pod in pods(found):
        account = pod.spec["serviceAccountName"]
        assert account in accounts
        assert accounts[account]["automountServiceAccountToken"] is False
        clustered = pod.labels.get("tidemark/executors") == "true"
        assert pod.spec["automountServiceAccountToken"] is clustered
        assert (account in subjects) is clustered


def test_executors_have_the_role_of_their_driver_and_no_right_in_the_cluster() -> None:
    accounts = named(documents("amazon"), "ServiceAccount")
    for layer in ("archive", "reconcile"):
        role = accounts[f"prod-tidemark-{layer}"]["metadata"]["annotations"]
        assert role == {"eks.amazonaws.com/role-arn": f"arn:aws:iam::111122223333:role/tidemark-{layer}"}
        assert accounts[f"prod-tidemark-{layer}-executors"]["metadata"]["annotations"] == role


def test_policies_let_through_what_is_needed_and_nothing_else(example: str, found: list[Document]) -> None:
    policies = list(named(found, "NetworkPolicy").values())
    every = list(pods(found))
    executors = [pod for pod in every if pod.layer == "executor"]
    for pod in every:
        assert connects(policies, pod, None, 53)
        assert connects(policies, pod, None, 443)
        assert connects(policies, pod, None, 9093)
        assert not connects(policies, pod, None, 22)
        assert not any(connects(policies, None, pod, port) for port in (22, 443, 4040, 7078, 7079))
    for pod in every:
        clustered = pod.labels.get("tidemark/executors") == "true"
        for executor in executors:
            assert connects(policies, pod, executor, 7079) is (clustered or pod in executors)
            assert connects(policies, executor, pod, 7079) is (clustered or pod in executors)
            assert connects(policies, executor, pod, 7078) is clustered
        assert connects(policies, pod, None, 6443) is clustered
    assert bool(executors) is (example == "amazon")


def test_probes_ask_for_the_heartbeat_of_the_pods_own_layer(found: list[Document]) -> None:
    for pod in pods(found):
        for probe in ("startupProbe", "livenessProbe"):
            if pod.layer not in STREAM_APPS:
                assert probe not in pod.container
                continue
            stream = pod.labels["tidemark/stream"]
            command = pod.container[probe]["exec"]["command"]
            assert command == ["tidemark", "status", stream, "--layer", pod.layer, "--stale-seconds", "60"]
        assert "readinessProbe" not in pod.container, "nothing connects to the pods"
