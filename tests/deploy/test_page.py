"""The commands of the page about Kubernetes, against the rendered documents and the real parsers (no server)."""

import re
import shlex

import pytest

from tests.deploy.chart import HELM, documents, named, pods, values
from tests.deploy.test_contents import accept
from tests.pages import blocks
from tidemark.installation import PROJECT

PAGE = PROJECT / "docs" / "how-to" / "deploy-to-kubernetes.md"
COMMANDS = [shlex.split(line) for block in blocks(PAGE) if block.language == "sh" for line in block.text.splitlines()]


def test_every_command_is_of_helm_or_kubectl_and_about_one_namespace() -> None:
    assert len(COMMANDS) == 10
    for command in COMMANDS:
        assert command[0] in {"helm", "kubectl"}
        assert command[command.index("--namespace") + 1] == "data"


def test_the_chart_and_the_values_that_helm_gets_are_files_of_the_project() -> None:
    (command,) = (command for command in COMMANDS if command[0] == "helm")
    assert command[1:4] == ["upgrade", "--install", "prod"]
    assert (PROJECT / command[4] / "Chart.yaml").is_file()
    assert PROJECT / command[command.index("--values") + 1] == HELM / "examples" / "own-servers.yaml"


def test_commands_in_pods_name_a_deployment_and_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    deployments = named(documents("own-servers"), "Deployment")
    inside = [command for command in COMMANDS if "exec" in command]
    assert len(inside) == 3
    for command in inside:
        assert command[command.index("exec") + 1].removeprefix("deploy/") in deployments
        accept(command[command.index("--") + 1 :], monkeypatch)


def test_the_secrets_that_the_page_creates_are_those_that_the_example_needs() -> None:
    created = {
        (command[6 if command[4] == "secret" else 5], _keys(command))
        for command in COMMANDS
        if "create" in command and command[4] != "job"
    }
    given = values("own-servers")
    needed: dict[str, set[str]] = {}
    for item in given["secrets"].values():
        needed.setdefault(item["secretName"], set()).add(item["key"])
    for item in given["certificates"].values():
        needed.setdefault(item["configMapName"], set()).add(item["key"])
    for name in given["image"]["pullSecrets"]:
        needed[name] = {".dockerconfigjson"}
    assert {name: set(keys) for name, keys in created} == needed


def _keys(command: list[str]) -> tuple[str, ...]:
    """The keys that ``--from-file`` gives: KEY=FILE, or the file's own name."""
    return tuple(word.removeprefix("--from-file=").split("=")[0] for word in command if word.startswith("--from-file="))


def test_a_run_by_hand_is_made_from_a_job_of_the_release() -> None:
    jobs = named(documents("own-servers"), "CronJob")
    (command,) = (command for command in COMMANDS if command[3:5] == ["create", "job"])
    assert command[-1].removeprefix("--from=cronjob/") in jobs


def test_the_accounts_that_the_page_names_exist() -> None:
    layers = {pod.layer for pod in pods(documents("amazon"))} - {"executor"}
    names = set(named(documents("amazon"), "ServiceAccount"))
    for pattern in re.findall(r"`(RELEASE-tidemark-LAYER[a-z-]*)`", PAGE.read_text(encoding="utf-8")):
        named_here = {pattern.replace("RELEASE", "prod").replace("LAYER", layer) for layer in layers}
        assert named_here & names
