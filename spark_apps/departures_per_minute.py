"""Count a stream's departures per minute and airport until SIGTERM."""

from tidemark.examples.departures_per_minute import run_departures
from tidemark.spark.app import stream_app

if __name__ == "__main__":
    stream_app(run_departures, __doc__)
