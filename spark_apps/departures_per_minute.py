"""Count a stream's departures per minute and airport until told to stop."""

from tidemark.spark.app import stream_app
from tidemark.speed.departures import run_departures

if __name__ == "__main__":
    stream_app(run_departures, __doc__)
