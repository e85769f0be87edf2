"""What a person taps is large enough, or far enough from the next such thing: a rule of WCAG 2.2."""

from pathlib import Path

import pytest

from tests.browser.chromium import NARROW, WIDE, chromium, violations, window
from tidemark.installation import PROJECT

pytestmark = pytest.mark.services
STYLES = PROJECT / "include" / "tidemark_airflow" / "pages" / "static" / "pages.css"
PAGE = """<!doctype html><html lang="en"><head><title>A day</title>
<meta name="viewport" content="width=device-width"><style>{styles}</style></head><body><main><h1>It failed</h1>
<details class="more"><summary>What the run reported</summary><p>An error.</p></details>
<p><a href="run">The report of that run</a></p></main></body></html>"""


def test_a_link_that_is_too_close_to_another_target_is_found_and_ours_is_not(tmp_path: Path) -> None:
    (tmp_path / "close.html").write_text(PAGE.format(styles="p, summary { margin: 0; line-height: 1 }"), "utf-8")
    (tmp_path / "ours.html").write_text(PAGE.format(styles=STYLES.read_text(encoding="utf-8")), "utf-8")
    with chromium() as browser:
        for width in (WIDE, NARROW):
            with window(browser, tmp_path.as_uri(), width=width) as own:
                own.open("close.html")
                assert [item.partition(":")[0] for item in violations(own.page.main_frame)] == ["target-size"]
                own.open("ours.html")
                assert violations(own.page.main_frame) == []
