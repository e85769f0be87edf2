"""Every page and endpoint refuses an anonymous caller, and a user without the right to the DAG."""

import pytest

from tests.batch.logs import MONDAY, Log
from tests.web.conftest import PagesServer

pytestmark = [pytest.mark.services, pytest.mark.conformance(27)]
# Pages of no single stream: what they show depends on the user's rights.
READS = {"GET", "HEAD"}
OPEN_TO_USERS = {"/", "/card.json", "/static/{name}"}


def filled(path: str, log: Log) -> str:
    """A route's path with a stream, day and run that exist."""
    values = {
        "{stream}": log.stream.name,
        "{day}": MONDAY.isoformat(),
        "{run}": "run-1",
        "{dag}": f"reconcile_{log.stream.name}",
        "{run_id}": "run-1",
        "{name}": "report.html" if "/runs/" in path else "pages.css",
    }
    for name, text in values.items():
        path = path.replace(name, text)
    assert "{" not in path, path
    return path


def test_every_route_refuses_an_anonymous_caller_and_one_of_a_wrong_token(pages: PagesServer, shown: Log) -> None:
    assert len(pages.routes) > 5
    for path, methods in pages.routes:
        for method in methods:
            with pages.client() as nobody:
                answer = nobody.request(method, filled(path, shown))
                assert (answer.status_code, method, path) == (401, method, path)
                assert shown.stream.topic not in answer.text
                forged = nobody.request(method, filled(path, shown), headers={"Cookie": "_token=e30.e30.e30"})
                assert (forged.status_code in {401, 403}, method, path) == (True, method, path)


def test_every_route_of_a_stream_refuses_a_user_of_another_team(pages: PagesServer, shown: Log) -> None:
    with pages.client("sam") as other_team, pages.client("vera") as own_team:
        for path, methods in pages.routes:
            for method in methods:
                answer = other_team.request(method, filled(path, shown))
                expected = 200 if path in OPEN_TO_USERS else 403
                assert (answer.status_code, method, path) == (expected, method, path)
        assert shown.stream.name not in other_team.get("/").text
        assert shown.stream.name in own_team.get("/").text


def test_every_route_that_acts_refuses_a_user_who_may_only_read(pages: PagesServer, shown: Log) -> None:
    acting = [(method, path) for path, methods in pages.routes for method in methods if method not in READS]
    assert len(acting) > 3
    with pages.client("vera") as viewer:
        for method, path in acting:
            answer = viewer.request(method, filled(path, shown))
            assert (answer.status_code, method, path) == (403, method, path)


def test_a_user_who_may_read_is_refused_no_page(pages: PagesServer, shown: Log) -> None:
    with pages.client("vera") as viewer:
        for path, methods in pages.routes:
            for method in READS & {*methods}:
                answer = viewer.request(method, filled(path, shown))
                assert (answer.status_code != 403, method, path) == (True, method, path)
