"""The settings in the how-tos of each environment reach each client (no server).

Their servers are on no machine of ours. So librdkafka itself checks its settings when a client is made.
"""

import re
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from tests.pages import blocks
from tidemark.installation import PROJECT
from tidemark.settings import Settings, resolve
from tidemark.spark.conf import session_conf, session_secrets
from tidemark.stack.certificates import client_certificate

PAGES = ("connect-to-msk", "connect-to-confluent-cloud", "connect-to-your-own-servers", "use-a-rest-catalog")
EXAMPLES = [
    pytest.param(page, number, id=f"{page}-{number}")
    for page in PAGES
    for number in range(sum(item.language == "toml" for item in blocks(PROJECT / "docs" / "how-to" / f"{page}.md")))
]
# By page and example: security protocol, mechanism, the class of Java's login, catalog type for Spark and pyiceberg.
EXPECTED = {
    ("connect-to-msk", 0): ("SASL_SSL", "AWS_MSK_IAM", "IAMLoginModule", "glue", "glue"),
    ("connect-to-msk", 1): ("SASL_SSL", "AWS_MSK_IAM", "IAMLoginModule", "glue", "glue"),
    ("connect-to-confluent-cloud", 0): ("SASL_SSL", "PLAIN", "PlainLoginModule", "jdbc", "sql"),
    ("connect-to-your-own-servers", 0): ("SASL_SSL", "SCRAM-SHA-512", "ScramLoginModule", "jdbc", "sql"),
    ("connect-to-your-own-servers", 1): ("SSL", None, None, "jdbc", "sql"),
    ("use-a-rest-catalog", 0): ("PLAINTEXT", None, None, "rest", "rest"),
    ("use-a-rest-catalog", 1): ("PLAINTEXT", None, None, "rest", "rest"),
}


def read(page: str, number: int, folder: Path) -> Settings:
    """The example's settings. Files that it names are there, and each variable has a value of its own."""
    found = [item.text for item in blocks(PROJECT / "docs" / "how-to" / f"{page}.md") if item.language == "toml"]
    client = client_certificate(folder / "pem", "tidemark")
    pem = {"acme-ca.pem": client.ca, "tidemark.pem": client.certificate, "tidemark.key": client.key}
    text = re.sub(r"/etc/ssl/([\w.-]+)", lambda match: str(pem[match[1]]), found[number])
    for name in re.findall(r"file:/run/secrets/(\w+)", text):
        (folder / name).write_text(f"planted-{name}\n", encoding="utf-8")
    path = folder / "tidemark.toml"
    path.write_text(text.replace("/run/secrets", str(folder)), encoding="utf-8")
    variables = {name: f"planted-{name}" for name in re.findall(r"\$\{(\w+)\}", text)}
    return resolve(variables={"TIDEMARK_CONFIG": str(path), **variables}).settings


def test_each_example_is_expected() -> None:
    assert [tuple(item.values) for item in EXAMPLES] == list(EXPECTED)


@pytest.mark.parametrize(("page", "number"), EXAMPLES)
def test_an_environments_settings_reach_every_client(
    page: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    protocol, mechanism, login, spark, pyiceberg = EXPECTED[page, number]
    found = read(page, number, tmp_path)
    java = found.kafka.java()
    assert (java.get("security.protocol"), java.get("sasl.mechanism")) == (protocol, mechanism)
    assert (login or "") in java.get("sasl.jaas.config", "")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")  # a token for MSK is signed without a server
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "k")
    Consumer(found.kafka.client({"group.id": "g"})).close()
    assert found.iceberg.spark()["type"] == spark
    assert found.iceberg.pyiceberg()["type"] == pyiceberg
    conf = session_conf(found)
    assert [name for name, text in conf.items() if "planted" in text and "external" not in name] == []
    assert all("planted" in text for text in session_secrets(found).values())


def test_the_role_of_another_account_is_assumed_with_its_external_id(tmp_path: Path) -> None:
    found = read("connect-to-msk", 1, tmp_path)
    conf = session_conf(found)
    assert conf["spark.hadoop.fs.s3a.assumed.role.arn"] == "arn:aws:iam::444455556666:role/tidemark-archive"
    assert found.s3_external_id == "planted-EXTERNAL_ID"
