"""Arguments that several commands take as text."""

from datetime import date

from tidemark.core.errors import RequestError


def parse_day(text: str) -> date:
    """Parse an ISO date. Raises RequestError for anything else."""
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise RequestError("invalid day", expected="YYYY-MM-DD", found=text) from error
