"""The chart's rendered documents, and what tests ask of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from tidemark.installation import PROJECT

HELM = PROJECT / "deploy" / "helm"
CHART = HELM / "tidemark"
EXAMPLES = sorted(path.stem for path in (HELM / "examples").glob("*.yaml"))
STREAM_APPS = ("archive", "speed")

Document = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """One pod that a document makes, and its only container."""

    owner: str
    labels: Mapping[str, str]
    spec: Document

    @property
    def container(self) -> Document:
        (found,) = self.spec["containers"]
        return dict(found)

    @property
    def layer(self) -> str:
        return self.labels["app.kubernetes.io/component"]


def values(example: str) -> Document:
    """An example's values."""
    return dict(yaml.safe_load((HELM / "examples" / f"{example}.yaml").read_text(encoding="utf-8")))


def documents(example: str) -> list[Document]:
    """The documents as Helm renders them with an example's values."""
    return list(yaml.safe_load_all((HELM / "rendered" / f"{example}.yaml").read_text(encoding="utf-8")))


def named(found: list[Document], kind: str) -> dict[str, Document]:
    """The documents of a kind by name; a name is used once."""
    items = [item for item in found if item["kind"] == kind]
    by_name = {item["metadata"]["name"]: item for item in items}
    assert len(by_name) == len(items)
    return by_name


def pods(found: list[Document]) -> Iterator[Pod]:
    """The pods of Deployments and CronJobs, and those that Spark makes from its template."""
    for item in found:
        name = f"{item['kind']} {item['metadata']['name']}"
        match item["kind"]:
            case "Deployment":
                yield _pod(name, item["spec"]["template"])
            case "CronJob":
                yield _pod(name, item["spec"]["jobTemplate"]["spec"]["template"])
            case "ConfigMap" if "executor.yaml" in item["data"]:
                yield _pod(name, yaml.safe_load(item["data"]["executor.yaml"]))


def _pod(owner: str, template: Document) -> Pod:
    return Pod(owner=owner, labels=template["metadata"]["labels"], spec=template["spec"])


def selects(selector: Document, labels: Mapping[str, str]) -> bool:
    """Whether a label selector fits, as the API defines it; only the operator In is known."""
    for rule in selector.get("matchExpressions", []):
        assert rule["operator"] == "In"
        if labels.get(rule["key"]) not in rule["values"]:
            return False
    return all(labels.get(name) == value for name, value in selector.get("matchLabels", {}).items())


def connects(policies: list[Document], source: Pod | None, target: Pod | None, port: int) -> bool:
    """Whether policies let ``source`` connect to ``target``; None is a host outside of the release."""
    return _allowed(policies, source, target, port, "egress") and _allowed(policies, target, source, port, "ingress")


def _allowed(policies: list[Document], pod: Pod | None, peer: Pod | None, port: int, direction: str) -> bool:
    if pod is None:
        return True
    kind = direction.capitalize()
    chosen = [
        item["spec"]
        for item in policies
        if selects(item["spec"]["podSelector"], pod.labels) and kind in item["spec"]["policyTypes"]
    ]
    side = "to" if direction == "egress" else "from"
    rules = [rule for spec in chosen for rule in spec.get(direction, [])]
    return not chosen or any(
        port in {item["port"] for item in rule["ports"]} and _is_peer(rule.get(side), peer) for rule in rules
    )


def _is_peer(allowed: list[Document] | None, peer: Pod | None) -> bool:
    """None allows every address; a block of addresses stands for hosts outside."""
    if allowed is None:
        return True
    return any(
        peer is None if "ipBlock" in item else peer is not None and selects(item["podSelector"], peer.labels)
        for item in allowed
    )
