"""When a stream's settings are costly, and the change that the advice names."""

from dataclasses import replace

import pytest

from tidemark.core.capacity import ArchiveSettings, Load
from tidemark.core.costs import StreamCosts, advise
from tidemark.core.requests import Prices

SOUND = StreamCosts(
    archive=ArchiveSettings(trigger_seconds=60),
    speed_trigger_seconds=10,
    exactly_once=False,
    load=Load(partitions=16, records_per_second=5_000),
)


def test_sound_settings_need_no_advice() -> None:
    assert advise(SOUND) == ()


def test_the_costs_are_those_of_both_streams() -> None:
    assert SOUND.dollars == SOUND.archive_dollars + SOUND.speed_dollars
    assert SOUND.requests == SOUND.archive_day.requests.total + SOUND.speed_day.requests.total


@pytest.mark.parametrize(
    ("costs", "key", "current", "value"),
    [
        (replace(SOUND, speed_trigger_seconds=0), "speed.trigger_seconds", 0, 1),
        (
            replace(SOUND, archive=ArchiveSettings(trigger_seconds=10), load=Load(partitions=1_000)),
            "archive.trigger_seconds",
            10,
            60,
        ),
        # No trigger is long enough: the advice is the longest.
        (replace(SOUND, load=Load(partitions=1_000_000)), "archive.trigger_seconds", 60, 3_600),
    ],
    ids=["speed", "archive", "far too many partitions"],
)
def test_dear_requests_lead_to_a_longer_trigger_of_the_dearer_stream(
    costs: StreamCosts, key: str, current: float, value: float
) -> None:
    (advice,) = advise(costs)
    assert (advice.key, advice.current, advice.value) == (key, current, value)
    assert advice.problem == "its requests cost more than $10 a day"
    assert advice.then.dollars < costs.dollars


def test_many_tiny_objects_lead_to_a_minimum_of_the_batch() -> None:
    costs = replace(SOUND, archive=ArchiveSettings(trigger_seconds=10), load=Load(partitions=16, records_per_second=40))
    (advice,) = advise(costs)
    assert (advice.key, advice.current, advice.value) == ("archive.min_offsets_per_trigger", None, 16 * 20_000)
    assert advice.problem == "its objects hold 25 records on average"
    # 40 records a second do not fill the minimum in 900 s: the delay decides.
    assert advice.then.archive_day.objects == 16 * 96


def test_a_minimum_above_the_maximum_is_not_advised() -> None:
    archive = ArchiveSettings(trigger_seconds=10, max_offsets_per_trigger=12_000)
    (advice,) = advise(replace(SOUND, archive=archive, load=Load(partitions=16, records_per_second=40)))
    assert advice.value == 12_000


def test_an_unknown_load_is_not_called_tiny() -> None:
    assert advise(replace(SOUND, archive=ArchiveSettings(trigger_seconds=10), load=Load(partitions=8))) == ()


def test_another_price_list_decides() -> None:
    free = Prices(name="our own server", million_writes=0, million_reads=0, gb_month=0)
    assert advise(replace(SOUND, speed_trigger_seconds=0, prices=free)) == ()
