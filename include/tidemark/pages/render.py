"""The templates. Every value is escaped; a name that no value has is an error."""

from functools import lru_cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from tidemark.core.days import utc_second
from tidemark.pages import words


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("tidemark.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": words.number,
        "plural": words.plural,
        "span": words.span,
        "minute": words.minute,
        "second": words.second,
        "time_us": utc_second,
        "listed": words.listed,
    }
    environment.globals |= {"REASONS": words.REASONS, "CAUSES": words.CAUSES, "record_state": words.record_state}
    return environment


def page(name: str, **values: Any) -> str:
    """The page of template ``<name>.html.j2``. ``root`` is the path before every link, without a slash at its end, and
    ``airflow`` that of Airflow's own pages."""
    return _environment().get_template(f"{name}.html.j2").render(**values)
