"""Process a stream's dead letters again, with its current transformation."""

from pyspark.sql import SparkSession

from tidemark.reconcile.app import step_app
from tidemark.run import Run
from tidemark.spark.streaming import log_event
from tidemark.speed.replay.replay import REPLAY, replay


def replay_run(run: Run, spark: SparkSession) -> None:
    with run.step(REPLAY) as attempt:
        attempt.result = out = replay(run.stream, run.settings, spark).to_value()
    log_event("replayed", layer="speed", stream=run.stream.name, run=run.name, **out)


if __name__ == "__main__":
    step_app("replay", replay_run, __doc__)
