"""Deliver a stream's records to its live topic until SIGTERM."""

from tidemark.spark.app import stream_app
from tidemark.speed.stream import run_speed

if __name__ == "__main__":
    stream_app(run_speed, __doc__)
