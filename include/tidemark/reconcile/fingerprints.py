"""What a rebuild follows from, hashed, so that a later step notices when it looks at something else."""

from collections.abc import Mapping
from typing import Any, Literal

from tidemark.core.codec import encode
from tidemark.core.errors import ConflictError
from tidemark.core.manifest import canonical_json, digest
from tidemark.core.plan import Plan
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
    code = (run.settings.streams_dir / f"{run.stream.name}.py").read_bytes()
    value = {
        "plan": plan_fingerprint(plan),
        "stream": run.stream.model_dump(mode="json"),
        "transformation": digest(code),
    }
    return digest(canonical_json(value))


def deduplicated_by(run: Run, rebuilt: Mapping[str, Any]) -> tuple[tuple[str, ...], Literal["first", "last"]]:
    """The key the rows were made with, none where it is empty, and which of its rows were kept.

    The definition may say something else since the rebuild.
    """
    wanted = run.stream.batch.deduplicate
    made = rebuilt.get("deduplicate", {"key": wanted.key, "keep": wanted.keep})  # of an earlier version's run: that
    return tuple(made["key"]), made["keep"]


def require_same_plan(run: Run, plan: Plan, rebuilt: Mapping[str, Any]) -> None:
    """Refuse where the plan was settled anew after the rebuild: its offsets would count as proven unread."""
    if rebuilt["plan"] != plan_fingerprint(plan):
        raise ConflictError(
            "the run was settled anew after its rebuild",
            expected=f"plan {plan_fingerprint(plan)[:12]}",
            found=f"rows of plan {rebuilt['plan'][:12]}",
            where=run.key("rebuild"),
            hint="Run the rebuild, audit and publish steps again",
        )
