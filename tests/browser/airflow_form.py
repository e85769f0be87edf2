"""What a person does with a DAG in Airflow: switch it on, and start a run by its form."""

from collections.abc import Mapping
from datetime import date

from tests.browser.chromium import Window


def trigger(window: Window, dag: str, form: Mapping[str, str | bool | date]) -> str:
    """Fill in the form, by the fields' names, and start the run; its id."""
    page = window.page
    window.open(f"dags/{dag}")
    page.get_by_role("button", name="Trigger").first.click()
    dialog = page.get_by_role("dialog").filter(has_text=f"Trigger Dag - {dag}")
    for name, value in form.items():
        field = dialog.locator(f"[name='element_{name}']")
        match value:
            case bool():
                if field.is_checked() != value:
                    dialog.locator(f"[id='switch:element_{name}']").click()
            case date():
                field.fill(value.isoformat())
            case str() if field.get_attribute("aria-hidden"):  # a drop-down, of which this is the value
                label = dialog.locator(f"div:has(> input[name='element_{name}'])")
                label.get_by_role("combobox").fill(value)
                page.get_by_role("option", name=value, exact=True).click()
            case str():
                field.fill(value)
    with page.expect_response(lambda answer: answer.request.method == "POST" and "/dagRuns" in answer.url) as started:
        dialog.get_by_test_id("trigger-dag-submit").click()
    assert started.value.ok, started.value.text()
    return str(started.value.json()["dag_run_id"])


def switch_on(window: Window, dag: str) -> None:
    """The switch beside the DAG's name in the list."""
    window.open(f"dags?name_pattern={dag}")
    near = "ancestor::*[.//*[@data-testid='toggle-pause']][1]//*[@data-testid='toggle-pause']"
    switch = window.page.get_by_role("link", name=dag, exact=True).locator(f"xpath={near}")
    with window.page.expect_response(lambda answer: answer.request.method == "PATCH") as switched:
        switch.click()
    assert switched.value.ok, switched.value.text()
