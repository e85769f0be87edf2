"""How far each writer had archived a day when its run was planned: by its batches' numbers, and by no clock."""

from dataclasses import replace

from tests.core.test_planner import FIRST, SECOND, THIRD, batch, target, world_of
from tests.core.worlds import Truth, log, plan_of
from tidemark.core.offsets import TopicPartition
from tidemark.core.plan import LastBatch, PlannedBatches

DAYS_OF_ROWS: dict[TopicPartition, Truth] = {log(): (FIRST,) * 10 + (SECOND,) * 10 + (FIRST,) * 5 + (THIRD,) * 15}


def test_each_planned_day_knows_the_last_batch_of_every_writer_with_rows_of_it() -> None:
    world = world_of(
        batch(3, 0, 10, DAYS_OF_ROWS),
        batch(4, 10, 20, DAYS_OF_ROWS),
        batch(7, 20, 25, DAYS_OF_ROWS),
        batch(8, 25, 40, DAYS_OF_ROWS),
        batch(1, 5, 15, DAYS_OF_ROWS, writer="b"),
        end=40,
        requested=(FIRST, SECOND),
    )
    plan = plan_of(world)
    assert plan.batches == (
        PlannedBatches(day=FIRST, last=(LastBatch(writer="a", batch=7), LastBatch(writer="b", batch=1))),
        PlannedBatches(day=SECOND, last=(LastBatch(writer="a", batch=4), LastBatch(writer="b", batch=1))),
    )
    assert plan.last_batches(FIRST) == plan.batches[0].last
    assert plan.last_batches(THIRD) == ()


def test_a_batch_after_the_target_is_not_known() -> None:
    world = world_of(batch(0, 0, 10, DAYS_OF_ROWS), batch(1, 20, 25, DAYS_OF_ROWS), end=10)
    world = replace(world, targets=(target(10),))
    assert plan_of(world).last_batches(FIRST) == (LastBatch(writer="a", batch=0),)
