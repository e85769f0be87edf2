"""What the pages show of a stream, its days, runs and records, and what is left of them when a service is down."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

import tidemark_verify
from tests.batch.logs import MONDAY, TUESDAY, Log
from tests.waiting import wait_until
from tests.web.conftest import PagesServer
from tidemark.core.layout import Layout
from tidemark.inspect.saved_status import save_status
from tidemark.reconcile.audit.checks import CheckOutcome, Expected
from tidemark.reconcile.results import AUDIT
from tidemark.s3 import ObjectStore

pytestmark = [pytest.mark.services, pytest.mark.conformance(39)]
LINKS = re.compile(r'(?:href|src)="([^"#]+)"')


def text_of(pages: PagesServer, path: str, user: str = "vera") -> str:
    with pages.client(user) as client:
        answer = client.get(path)
    assert (answer.status_code, path) == (200, path)
    return answer.text


def has(pages: PagesServer, path: str, texts: tuple[str, ...]) -> bool:
    page = text_of(pages, path)
    return all(text in page for text in texts)


def test_a_day_shows_its_versions_proof_and_run(pages: PagesServer, shown: Log) -> None:
    page = text_of(pages, f"/streams/{shown.stream.name}/days/{MONDAY}")
    assert f"<h1>{MONDAY} is complete.</h1>" in page
    assert "9 records are published in version 1." in page
    assert f"/streams/{shown.stream.name}/runs/run-1" in page
    assert 'name="csrf"' not in page  # a viewer gets no form


def test_a_day_gives_its_certificate_and_says_that_it_is_unsigned(
    pages: PagesServer, shown: Log, tmp_path: Path
) -> None:
    folder = f"/streams/{shown.stream.name}/days/{TUESDAY}/certificates/"
    page = text_of(pages, f"/streams/{shown.stream.name}/days/{TUESDAY}")
    assert "<strong>unsigned</strong>" in page
    names = re.findall(rf'href="/tidemark{folder}([^"]+)"', page)
    assert len(names) == 2
    with pages.client("vera") as client:
        for name in names:
            answer = client.get(folder + name)
            file = re.fullmatch(r'attachment; filename="(.+)"', answer.headers["content-disposition"])
            assert file
            (tmp_path / file[1]).write_bytes(answer.content)
        for other in ("0002.json", "0001.json.json", "%2e%2e/0001.json", f"{'0' * 64}.objects"):
            assert client.get(folder + other).status_code == 404
    for item in shown.store.list(shown.layout.data_prefix):
        path = tmp_path / item.key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(shown.store.get(item.key) or b"")
    found = tidemark_verify.check([str(path) for path in tmp_path.glob("*.json")], (), str(tmp_path))
    assert (found.verdict, found.certificates[0].objects_checked) == ("holds", 1)


def test_a_certificate_is_read_in_the_browser_from_the_page_of_its_day_or_run(pages: PagesServer, shown: Log) -> None:
    path = f"/streams/{shown.stream.name}/days/{TUESDAY}/certificate"
    for page in (f"/streams/{shown.stream.name}/days/{TUESDAY}", f"/streams/{shown.stream.name}/runs/run-1"):
        assert f'href="/tidemark{path}?version=1"' in text_of(pages, page)
    page = text_of(pages, f"{path}?version=1")
    assert page == text_of(pages, path)
    assert f"<h1>Certificate of {TUESDAY}, version 1</h1>" in page
    assert "<strong>Unsigned</strong>" in page
    assert "&#34;sha256&#34;: &#34;" in page
    saved = re.findall(rf'href="/tidemark(/streams/{shown.stream.name}/days/{TUESDAY}/certificates/[^"]+)"', page)
    assert len(saved) == 2
    with pages.client("vera") as client:
        assert [client.get(link).headers["content-disposition"][:10] for link in saved] == ["attachment"] * 2
        for other in (f"{path}?version=2", path.replace(str(TUESDAY), "2012-01-02")):
            assert client.get(other).status_code == 404


def saved(shown: Log, ago: timedelta) -> datetime:
    """Save the stream's status in place of any other, and return its time: a later one would stay."""
    store, layout = ObjectStore(shown.settings), Layout(prefix=shown.settings.prefix, stream=shown.stream.name)
    store.delete(layout.status_key)
    saved_at = datetime.now(UTC) - ago
    save_status(shown.settings, [shown.stream.name], now=saved_at)
    return saved_at


def test_streams_are_as_saved_and_say_what_to_start_if_that_is_long_ago(pages: PagesServer, shown: Log) -> None:
    saved_at = saved(shown, timedelta(hours=3))
    page = text_of(pages, "/")
    assert f"As of {saved_at:%Y-%m-%d %H:%M} UTC." in page
    assert "That is 3 h ago: unpause the DAG tidemark_watch" in page
    assert f'/streams/{shown.stream.name}/days/{TUESDAY}"' in page


def test_a_stream_is_as_saved_a_short_time_ago_unless_one_asks_for_its_present_state(
    pages: PagesServer, shown: Log
) -> None:
    saved_at, path = saved(shown, timedelta(minutes=15)), f"/streams/{shown.stream.name}"
    assert f"As of {saved_at:%Y-%m-%d %H:%M} UTC." in (page := text_of(pages, path))
    assert f'href="/tidemark{path}?check=true"' in page
    began = datetime.now(UTC).replace(second=0, microsecond=0)
    checked = re.search(r"As of (.{16}) UTC", text_of(pages, f"{path}?check=true"))
    assert checked is not None
    assert began <= datetime.strptime(checked[1], "%Y-%m-%d %H:%M").replace(tzinfo=UTC) <= datetime.now(UTC)


def test_every_link_of_every_page_leads_somewhere(pages: PagesServer, shown: Log) -> None:
    name = shown.stream.name
    wanted = ["/", f"/streams/{name}", f"/streams/{name}/days/{TUESDAY}", f"/streams/{name}/runs/run-1"]
    seen: set[str] = set()
    with pages.client("ada") as client:
        for path in wanted:
            for link in LINKS.findall(client.get(path).text):
                if link.startswith("/tidemark/") and link not in seen:
                    seen.add(link)
                    answer = client.get(link.removeprefix("/tidemark"))
                    assert (answer.status_code, link) == (200, link)
    assert len(seen) > 10


def test_the_tide_shows_what_kafka_and_the_seals_have(pages: PagesServer, shown: Log) -> None:
    fragment = text_of(pages, f"/streams/{shown.stream.name}/tide")
    assert fragment.count("<svg") == 2
    ends = {partition: max(offsets) + 1 for partition, offsets in shown.produced.items()}
    assert all(f'<td class="number">{end}</td>' in fragment for end in ends.values())


def test_a_record_is_found_by_partition_and_offset(pages: PagesServer, shown: Log) -> None:
    page = text_of(pages, f"/streams/{shown.stream.name}/find?partition=0&offset=3")
    assert f"/days/{MONDAY}" in page
    assert shown.layout.data_prefix in page
    missing = text_of(pages, f"/streams/{shown.stream.name}/find?partition=0&offset=999999")
    assert "was not found" in missing
    assert "the offset is outside the log" in missing


def test_the_calendar_has_every_sealed_day_of_a_year(pages: PagesServer, shown: Log) -> None:
    page = text_of(pages, f"/streams/{shown.stream.name}?year=2013")
    assert page.count('<table class="month">') == 12
    for day in (MONDAY, TUESDAY):
        assert re.search(rf'class="cell waiting" href="[^"]*/days/{day}" title="{day}: sealed', page)


def test_a_run_shows_its_report_which_may_load_nothing(pages: PagesServer, shown: Log) -> None:
    page = text_of(pages, f"/streams/{shown.stream.name}/runs/run-1")
    assert f'href="/tidemark/streams/{shown.stream.name}/runs/run-1">complete</a>' in text_of(pages, "/")
    assert '<iframe class="document"' in page
    with pages.client("vera") as client:
        report = client.get(f"/streams/{shown.stream.name}/runs/run-1/report.html")
    policy = report.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'self'" in policy
    assert "script-src" not in policy
    assert "connect-src" not in policy
    assert 'href="../index.html"' in report.text


def test_the_index_that_a_report_links_is_the_page_of_its_stream(pages: PagesServer, shown: Log) -> None:
    with pages.client("vera") as client:
        index = client.get(f"/streams/{shown.stream.name}/runs/index.html")
    assert (index.status_code, index.headers["location"]) == (303, f"/tidemark/streams/{shown.stream.name}")


def test_a_day_links_its_data_docs_which_may_run_nothing(pages: PagesServer, shown: Log) -> None:
    run = shown.run("run-1")
    with run.step(AUDIT) as attempt:
        attempt.result = replace(run.require(AUDIT), data_docs=(TUESDAY,))
    shown.store.put(shown.layout.run_key("run-1", f"data-docs-{TUESDAY}.html"), b"<p>checked</p>")
    path = f"/streams/{shown.stream.name}/runs/run-1/data-docs-{TUESDAY}.html"
    assert f'href="/tidemark{path}"' in text_of(pages, f"/streams/{shown.stream.name}/days/{TUESDAY}")
    assert "data-docs" not in text_of(pages, f"/streams/{shown.stream.name}/days/{MONDAY}")
    with pages.client("vera") as client:
        found, missing = client.get(path), client.get(path.replace(str(TUESDAY), str(MONDAY)))
    assert (found.text, found.headers["content-type"]) == ("<p>checked</p>", "text/html; charset=utf-8")
    assert "default-src 'none'" in found.headers["content-security-policy"]
    assert "script-src" not in found.headers["content-security-policy"]
    assert missing.status_code == 404
    with pages.client("sam") as client:
        assert client.get(path).status_code == 403


def test_a_day_shows_each_check_with_its_results_on_the_days_before(pages: PagesServer, shown: Log) -> None:
    run = shown.run("run-1")
    expected = Expected(
        expectation="expect_column_min_to_be_between", kwargs={"column": "delay"}, severity="warning", built_in=False
    )
    checks = tuple(
        CheckOutcome(expected=expected, success=day == MONDAY, observed=3, day=day) for day in (MONDAY, TUESDAY)
    )
    with run.step(AUDIT) as attempt:
        attempt.result = replace(run.require(AUDIT), checks=checks)
    page = text_of(pages, f"/streams/{shown.stream.name}/days/{TUESDAY}")
    table = page[page.index('<h2 id="checks">') : page.index('<h2 id="runs">')]
    assert re.findall(r'<abbr title="(.{10})">', table) == [str(TUESDAY), str(MONDAY)]
    assert re.findall(r'<td class="number result (\w+)">', table) == ["failed", "passed"]
    assert "delay" in table


def test_unknown_streams_days_runs_and_dags_lead_back(pages: PagesServer, shown: Log) -> None:
    name = shown.stream.name
    with pages.client("ada") as client:
        for path in (
            "/streams/nothing",
            "/streams/nothing/days/2013-01-14",
            f"/streams/{name}/days/2013-02-30",
            f"/streams/{name}/runs/nothing",
            f"/streams/{name}/runs/%C3%BC",
            f"/streams/{name}/runs/run-1/other.html",
            "/dags/tidemark_backfill",
            "/dags/tidemark_backfill/runs/x",
            "/nothing",
        ):
            answer = client.get(path)
            assert (answer.status_code, path) == (404, path)
            assert 'href="/tidemark/"' in answer.text
        never = client.get(f"/streams/{name}/days/2012-01-01")
        assert "2012-01-01 is missing." in never.text


def test_a_tab_leads_to_the_streams_page_or_the_runs(pages: PagesServer, shown: Log) -> None:
    dag = f"reconcile_{shown.stream.name}"
    with pages.client("vera") as client:
        stream = client.get(f"/dags/{dag}")
        run = client.get(f"/dags/{dag}/runs/run-1")
    assert stream.headers["location"] == f"/tidemark/streams/{shown.stream.name}"
    assert run.headers["location"] == f"/tidemark/streams/{shown.stream.name}/runs/run-1"


def test_every_answer_has_the_headers_that_keep_others_out(pages: PagesServer, shown: Log) -> None:
    with pages.client("ada") as client, pages.client() as nobody:
        for answer in (client.get("/"), client.get("/nothing"), nobody.get("/"), client.get("/static/pages.css")):
            assert "default-src 'none'" in answer.headers["content-security-policy"]
            assert "unsafe-inline" not in answer.headers["content-security-policy"]
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["x-frame-options"] == "SAMEORIGIN"


def test_with_every_service_down_a_page_says_what_is_missing_in_time(down: PagesServer, shown: Log) -> None:
    of_stream = f"/streams/{shown.stream.name}"
    with down.client("ada") as client:
        client.get("/static/pages.css")  # loads the pages
        for path in (
            f"{of_stream}/days/2013-01-14",
            f"{of_stream}/tide",
            f"{of_stream}/runs/run-1",
            f"{of_stream}/find?partition=0&offset=1",
            f"{of_stream}/find?day=2013-01-14&key=rider-7",
        ):
            answer = client.get(path)
            assert (answer.status_code, path) == (200, path)
            assert "could not be read" in answer.text
        stream = client.get(of_stream)
        parts = ("The status", "The tide", "The calendar")
        assert (stream.status_code, [stream.text.count(f">{part} could") for part in parts]) == (200, [1, 1, 1])


def test_with_kafka_down_the_calendar_and_the_days_are_there_all_the_same(no_kafka: PagesServer, shown: Log) -> None:
    """The status needs Kafka: the last one is shown, with the error."""
    stream, saved_at = f"/streams/{shown.stream.name}", saved(shown, timedelta(hours=3))
    days = tuple(f'/days/{day}" title="{day}: ' for day in (MONDAY, TUESDAY))
    day = (f"<h1>{MONDAY} is complete.</h1>", "readers see it", 'id="proof">Proof of version 1</h2>')
    for path, texts in ((f"{stream}?year=2013", days), (f"{stream}/days/{MONDAY}", day)):
        # A busy machine may need too long for the first page of all.
        wait_until(partial(has, no_kafka, path, texts), f"{path} shows {texts}")
    parts = ("The tide", "The calendar", "Which days failed")

    def as_saved() -> bool:
        found = text_of(no_kafka, f"{stream}?year=2013")
        unread = [found.count(f">{part} could") for part in parts]
        return f"As of {saved_at:%Y-%m-%d %H:%M} UTC." in found and unread == [1, 0, 0] and "mark good" not in found

    wait_until(as_saved, "the stream's page shows the saved status, and does not call it complete")
    assert "could not be read" not in text_of(no_kafka, f"{stream}/days/{MONDAY}")


def test_with_a_catalog_that_hangs_a_page_names_it_and_shows_the_rest(hung: PagesServer, shown: Log) -> None:
    stream = f"/streams/{shown.stream.name}"
    day = (
        "<h1>2013-01-14 is complete.</h1>",
        "What readers see could not be read: the catalog does not answer.",
        "<dt>Expected</dt><dd>an answer within 4 s</dd>",
        "<dt>Where</dt><dd><code>rest catalog tidemark at http://127.0.0.1:",
    )
    now = (f"Cannot find out the days of {shown.stream.name}: ServiceError: the catalog does not answer",)
    for path, texts in ((f"{stream}/days/{MONDAY}", day), (f"{stream}?check=true", now)):
        # A busy machine may need too long for the first page of all.
        wait_until(partial(has, hung, path, texts), f"{path} shows {texts}")
