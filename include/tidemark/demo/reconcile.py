"""The demo's reconcile run, through Airflow's API."""

from tidemark.core.errors import StackError
from tidemark.demo.show import Show
from tidemark.demo.source import DAYS
from tidemark.demo.supervise import Supervisor
from tidemark.orchestration.steps import STEPS, dag_id
from tidemark.stack.airflow import LocalAirflow
from tidemark.stack.airflow_api import TaskState

KNOWN_S = 480
RUN_S = 2400
ENDED = frozenset({"success", "failed"})
TASK_WIDTH = max(len(step.name) for step in STEPS)
STYLES = {"success": "green", "failed": "bold red", "up_for_retry": "yellow", "upstream_failed": "red"}
# States of a task that has not started: they are not printed.
NOT_STARTED = frozenset({None, "none", "scheduled", "queued"})


def reconcile(airflow: LocalAirflow, stream: str, show: Show, supervisor: Supervisor) -> str:
    """Run the stream's DAG for the demo's days, print each task's state, and return the run id."""
    api, dag = airflow.api, dag_id(stream)

    def known() -> bool:
        if errors := api.import_errors():
            file, text = next(iter(errors.items()))
            raise StackError("Airflow cannot import a DAG file", found=text.strip().splitlines()[-1], where=file)
        return api.dag_known(dag)

    supervisor.until(known, f"Airflow finds {dag}", timeout_s=KNOWN_S)
    api.unpause(dag)
    run_id = api.trigger(dag, {"from_day": DAYS[0].isoformat(), "to_day": DAYS[-1].isoformat()})
    show.say(f"Triggered: {api.url}/dags/{dag}/runs/{run_id}")
    shown: dict[str, tuple[str | None, int]] = {}

    def ended() -> str | None:
        states = {item.task: item for item in api.task_states(dag, run_id)}
        for step in STEPS:
            item = states.get(step.name)
            if item is not None and item.state not in NOT_STARTED and shown.get(item.task) != (item.state, item.tries):
                shown[item.task] = (item.state, item.tries)
                show.say(f"  {_line(item)}", STYLES.get(item.state or "", ""))
        running = [item.task for item in states.values() if item.state == "running"]
        show.doing(f"Airflow runs {', '.join(running) or 'the next task soon'}")
        state = api.run_state(dag, run_id)
        return state if state in ENDED else None

    state = supervisor.until(ended, f"{dag} runs", timeout_s=RUN_S)
    if state != "success":
        failed = next((name for name, (task_state, _) in shown.items() if task_state == "failed"), "none")
        logs = airflow.home / "logs" / f"dag_id={dag}" / f"run_id={run_id}" / f"task_id={failed}"
        raise StackError(
            "the reconcile run failed", expected="success", found=f"task {failed} failed", where=f"log: {logs}"
        )
    return run_id


def _line(item: TaskState) -> str:
    text = f"{item.task:<{TASK_WIDTH}} {item.state}"
    if item.tries > 1:
        text += f", attempt {item.tries}"
    return text if item.seconds is None or item.state == "running" else f"{text} after {item.seconds:.1f} s"
