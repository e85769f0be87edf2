"""The files of deploy/monitoring against the code and the pages; promtool checks the rules."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.monitoring.files import (
    FOLDER,
    RUNBOOKS,
    dashboard,
    in_prometheus,
    known_metrics,
    metrics_in,
    panels,
    queries,
)
from tests.monitoring.files import rules as alert_rules
from tests.pages import blocks
from tidemark.core.instruments import STEP_INSTRUMENTS
from tidemark.inspect.problems import KINDS, PAGES, WATCH_KINDS
from tidemark.installation import PROJECT

RULES = alert_rules()


def test_every_alert_has_a_severity_a_summary_and_a_page_and_every_page_has_an_alert() -> None:
    for rule in RULES:
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert set(rule["annotations"]) == {"summary", "runbook"}
        page = PROJECT / rule["annotations"]["runbook"]
        assert f"**Alert.** `{rule['alert']}`\n" in page.read_text(encoding="utf-8")
    pages = {path.relative_to(PROJECT).as_posix() for path in RUNBOOKS.glob("*.md") if path.name != "index.md"}
    assert sorted(rule["annotations"]["runbook"] for rule in RULES) == sorted(pages)
    index = (RUNBOOKS / "index.md").read_text(encoding="utf-8")
    listed = re.findall(r"(?m)^\| `(Tidemark\w+)` \| (\w+) \|", index)
    assert sorted(listed) == sorted((rule["alert"], rule["labels"]["severity"]) for rule in RULES)


def test_every_kind_of_problem_has_a_page() -> None:
    index = (RUNBOOKS / "index.md").read_text(encoding="utf-8")
    table = index.partition("From a problem")[2]
    listed = dict(re.findall(r"(?m)^\| `(\w+)` \| \[.+\]\(([\w./-]+\.md)\) \|", table))
    assert listed.keys() == KINDS.keys() | WATCH_KINDS.keys()
    pages = {kind: (RUNBOOKS / page).resolve(strict=True) for kind, page in listed.items()}
    assert {kind: (PROJECT / "docs" / f"{page}.md").resolve() for kind, page in PAGES.items()} == pages


def test_a_problem_of_every_kind_raises_an_alert() -> None:
    named = set(re.findall(r'tidemark_kind="(\w+)"', " ".join(rule["expr"] for rule in RULES)))
    layers = {f"{layer}_{end}" for layer in ("archive", "speed", "departures") for end in ("failed", "stale")}
    # These have metrics of their own, with values for the alert's text.
    numbers = {"retention", "overflow", "out_of_bounds", "unreadable_times", "day_overdue"}
    assert named | layers | numbers == set(KINDS)


def test_alerts_and_dashboard_name_only_metrics_that_exist_and_the_dashboard_shows_all_of_them() -> None:
    known = known_metrics()
    names = set().union(*known)
    assert metrics_in(" ".join(rule["expr"] for rule in RULES)) <= names
    shown = metrics_in(" ".join(query for _, query in queries()))
    assert shown <= names
    assert [item for item in known if not item & shown] == []
    variables = metrics_in(" ".join(item["query"] for item in dashboard()["templating"]["list"]))
    assert variables <= names


def test_only_gauges_of_steps_are_summed_over_time() -> None:
    steps = set().union(*map(in_prometheus, STEP_INSTRUMENTS))
    for _, query in queries():
        assert set(re.findall(r"sum_over_time\((\w+)", query)) <= steps
        assert set(re.findall(r"(?:rate|increase)\((\w+)", query)) & steps == set()


def test_every_panel_says_what_it_shows_and_lies_on_no_other() -> None:
    found = list(panels())
    assert len({panel["id"] for panel in dashboard()["panels"]}) == len(dashboard()["panels"])
    assert {str(target["datasource"]["uid"]) for panel in found for target in panel["targets"]} == {"${datasource}"}
    taken: dict[tuple[int, int], str] = {}
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for cell in ((x, y) for x in range(place["w"]) for y in range(place["h"])):
            at = (place["x"] + cell[0], place["y"] + cell[1])
            assert at not in taken, (panel["title"], taken.get(at))
            taken[at] = panel["title"]
    for panel in found:
        assert len(panel["description"]) > 10
        defaults = panel["fieldConfig"]["defaults"]
        assert panel["type"] in {"table", "state-timeline"} or defaults["unit"]
        if panel["type"] == "timeseries":
            assert all(target["legendFormat"] for target in panel["targets"])


def test_each_alert_is_tested_while_it_fires_and_while_it_does_not() -> None:
    tests = yaml.safe_load((FOLDER / "alerts_test.yaml").read_text(encoding="utf-8"))["tests"]
    cases = [(case["alertname"], bool(case["exp_alerts"])) for test in tests for case in test["alert_rule_test"]]
    assert {(rule["alert"], fires) for rule in RULES for fires in (True, False)} == set(cases)


@pytest.mark.services
def test_promtool_accepts_the_rules_and_their_tests(promtool: str) -> None:
    for command in ("check", "test"):
        file = "alerts.yaml" if command == "check" else "alerts_test.yaml"
        done = subprocess.run([promtool, command, "rules", FOLDER / file], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert "SUCCESS" in done.stdout


@pytest.mark.services
def test_prometheus_accepts_the_configuration_on_the_page_and_that_of_compose(promtool: str, tmp_path: Path) -> None:
    page = PROJECT / "docs" / "how-to" / "monitor-with-prometheus.md"
    (shown,) = (block.text for block in blocks(page) if block.language == "yaml")
    composed = (PROJECT / "compose" / "prometheus.yml").read_text(encoding="utf-8")
    composed = re.sub(r"(?ms)^otlp:.*?\n\n", "", composed)  # a section that only release 3 knows
    for text in (shown, composed):
        file = tmp_path / "prometheus.yml"
        file.write_text(re.sub(r"/[\w/]+/alerts\.yaml", str(FOLDER / "alerts.yaml"), text), encoding="utf-8")
        done = subprocess.run([promtool, "check", "config", file], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"{len(RULES)} rules found" in done.stdout
