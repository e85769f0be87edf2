"""Archive a stream's topic: every record to S3, exactly once, until stopped."""

from tidemark.archive.stream.driver import run_archive
from tidemark.spark.app import stream_app

if __name__ == "__main__":
    stream_app(run_archive, __doc__)
