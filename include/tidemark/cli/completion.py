"""What the shell completes: names of streams and of local stacks. Only folders are read, so that it is quick."""

from collections.abc import Iterable
from contextlib import suppress

from tidemark.core.errors import TidemarkError
from tidemark.installation import PROJECT


def complete_stream(incomplete: str) -> list[str]:
    """Streams whose names begin so; none if the settings or the folder can't be read, because a shell shows errors."""
    from tidemark.settings import streams_dir

    with suppress(TidemarkError, OSError, ValueError):
        return _beginning(incomplete, (path.stem for path in streams_dir().glob("[a-z]*.yaml")))
    return []


def complete_stack(incomplete: str) -> list[str]:
    """Local stacks whose names begin so, running or not."""
    return _beginning(incomplete, (path.parent.name for path in (PROJECT / ".tidemark").glob("*/stack.env")))


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))
