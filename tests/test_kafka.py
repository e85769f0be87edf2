"""What Kafka's edge says when Kafka does not have what was asked for."""

import pytest

from tidemark.core.errors import ServiceError
from tidemark.kafka import describe_topic
from tidemark.settings import Settings


def test_a_topic_that_is_not_there_is_named_with_what_to_do(settings: Settings) -> None:
    with pytest.raises(ServiceError) as caught:
        describe_topic(settings.kafka_bootstrap, "never_made")
    error = caught.value
    assert (error.problem, error.found, error.where) == (
        "Kafka has no such topic",
        "never_made",
        settings.kafka_bootstrap,
    )
    assert error.hint is not None
    assert error.hint.startswith("Create it, or correct the name")
