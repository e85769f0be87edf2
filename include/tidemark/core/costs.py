"""Whether a stream's settings are costly, and which setting to change."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tidemark.core.capacity import ArchiveSettings, DayEstimate, Load, archive_day, speed_day
from tidemark.core.requests import ASSUMED_PRICES, Prices

COSTLY_PER_DAY = 10.0  # dollars for the requests of one stream: more than small machines for its two streams
TINY_RECORDS, MANY_OBJECTS = 1_000, 10_000  # so many objects in a day with so few records each are worth a warning
ROOMY_RECORDS = 20_000  # the size to aim at instead
_TRIGGERS = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCosts:
    """A stream's settings, its load, and what a day of both streams costs for requests by a price list."""

    archive: ArchiveSettings
    speed_trigger_seconds: float
    exactly_once: bool
    load: Load
    prices: Prices = ASSUMED_PRICES

    @property
    def archive_day(self) -> DayEstimate:
        return archive_day(self.archive, self.load)

    @property
    def speed_day(self) -> DayEstimate:
        return speed_day(self.speed_trigger_seconds, self.load, exactly_once=self.exactly_once)

    @property
    def archive_dollars(self) -> float:
        return self.prices.cost(self.archive_day.requests)

    @property
    def speed_dollars(self) -> float:
        return self.prices.cost(self.speed_day.requests)

    @property
    def dollars(self) -> float:
        """For the requests of a day, without storage."""
        return self.archive_dollars + self.speed_dollars

    @property
    def requests(self) -> float:
        return self.archive_day.requests.total + self.speed_day.requests.total


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A setting to change: its key, today's value and another one, and the costs that the stream has then.

    ``problem`` says what is costly. ``current`` is None for a key without a value.
    """

    problem: str
    key: str
    current: float | None
    value: float
    then: StreamCosts


def advise(costs: StreamCosts) -> tuple[Advice, ...]:
    """What to change, the most expensive first; nothing if the settings are sound."""
    return (*_dear(costs), *_tiny(costs))


def _dear(costs: StreamCosts) -> Iterator[Advice]:
    """A longer trigger of the stream that costs more, if both cost more than COSTLY_PER_DAY."""
    if costs.dollars <= COSTLY_PER_DAY:
        return
    problem = f"its requests cost more than ${COSTLY_PER_DAY:g} a day"
    if costs.speed_dollars > costs.archive_dollars:
        options = [replace(costs, speed_trigger_seconds=seconds) for seconds in _longer(costs.speed_trigger_seconds)]
        current, key = costs.speed_trigger_seconds, "speed.trigger_seconds"
        values = [item.speed_trigger_seconds for item in options]
    else:
        current, key = costs.archive.trigger_seconds, "archive.trigger_seconds"
        options = [
            replace(costs, archive=replace(costs.archive, trigger_seconds=seconds)) for seconds in _longer(current)
        ]
        values = [item.archive.trigger_seconds for item in options]
    useful = [(value, then) for value, then in zip(values, options, strict=True) if then.dollars < costs.dollars]
    if useful:
        value, then = next((item for item in useful if item[1].dollars <= COSTLY_PER_DAY), useful[-1])
        yield Advice(problem=problem, key=key, current=current, value=value, then=then)


def _tiny(costs: StreamCosts) -> Iterator[Advice]:
    """A minimum for the archive's batches, if it writes many objects of few records."""
    day = costs.archive_day
    if day.records_per_object is None or day.records_per_object >= TINY_RECORDS or day.objects < MANY_OBJECTS:
        return
    least = costs.load.partitions * costs.load.folders * ROOMY_RECORDS
    largest = costs.archive.max_offsets_per_trigger
    value = least if largest is None else min(least, largest)
    then = replace(costs, archive=replace(costs.archive, min_offsets_per_trigger=value))
    if then.archive_day.objects < day.objects:
        yield Advice(
            problem=f"its objects hold {day.records_per_object:,.0f} records on average",
            key="archive.min_offsets_per_trigger",
            current=costs.archive.min_offsets_per_trigger,
            value=value,
            then=then,
        )


def _longer(seconds: float) -> list[float]:
    return [item for item in _TRIGGERS if item > seconds]
