"""What the forms of the DAGs share: the drop-down of streams, the days, and the description."""

from collections.abc import Sequence

from airflow.sdk import Param

from tidemark.orchestration.steps import Reconcile


def stream_param(items: Sequence[Reconcile], *, default: str | None = None) -> Param:
    """The drop-down of streams. A ``default`` is its first choice; without one a person has to choose."""
    schema = {"type": "string", "title": "Stream", "enum": [item.name for item in items]}
    if default is None:
        return Param(description="The stream.", schema=schema)
    choices = {**schema, "enum": [default, *(item.name for item in items)]}
    return Param(default, description=f"The stream, or “{default}”.", schema=choices)


def day_param(title: str, description: str) -> Param:
    """A day that has to be filled in."""
    return Param(description=description, schema={"type": "string", "format": "date", "title": title})


def force_param() -> Param:
    """Whether to rebuild days that did not change."""
    return Param(
        False,
        description="Rebuild a day again, as a new version, although nothing new was archived since it was sealed.",
        schema={"type": "boolean", "title": "Rebuild unchanged days"},
    )


def doc(items: Sequence[Reconcile], text: str) -> str:
    """The DAG's page: the text, after the streams that cannot be chosen and why."""
    broken = [item for item in items if item.error is not None]
    parts = [f"**The definition of stream `{item.name}` is broken.**\n\n```\n{item.error}\n```" for item in broken]
    return "\n\n".join([*parts, text])
