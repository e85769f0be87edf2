"""Hashes of a rebuild's inputs, so that a later step notices when they have changed."""

from tidemark.core.codec import encode
from tidemark.core.errors import ConflictError
from tidemark.core.manifest import canonical_json, digest
from tidemark.core.plan import Plan
from tidemark.reconcile.results import REBUILD, RebuildResult
from tidemark.run import Run


def plan_fingerprint(plan: Plan) -> str:
    """The days with their versions, what must be proven of each log, and the slices read."""
    value = {
        "days": encode(plan.days),
        "targets": encode(tuple(item.target for item in plan.logs)),
        "slices": encode(tuple(sorted(plan.slices, key=lambda item: (item.key, item.range)))),
    }
    return digest(canonical_json(value))


def rows_fingerprint(run: Run, plan: Plan) -> str:
    """The plan, and the definition and transformation that make rows of it."""
    file = run.settings.streams_dir / f"{run.stream.name}.py"
    code = file.read_bytes() if file.exists() else b""  # without a file, each field is a column
    value = {
        "plan": plan_fingerprint(plan),
        "stream": run.stream.model_dump(mode="json", exclude={"spark", "description", "owner"}),
        "transformation": digest(code),
    }
    return digest(canonical_json(value))


def require_same_plan(run: Run, plan: Plan, rebuilt: RebuildResult) -> None:
    """Refuse if the plan was finalized again after the rebuild: its offsets would count as proven unread."""
    if rebuilt.plan != plan_fingerprint(plan):
        raise ConflictError(
            "the plan was finalized again after the rebuild",
            expected=f"plan {plan_fingerprint(plan)[:12]}",
            found=f"rows of plan {rebuilt.plan[:12]}",
            where=run.key(REBUILD.name),
            hint="Run the rebuild, audit and publish steps again",
        )
