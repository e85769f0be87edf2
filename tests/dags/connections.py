"""An Airflow whose tasks know Kafka, S3 and the catalog from its connections only."""

import json
from pathlib import Path

from tidemark.connections.sources import ENV_FILE_VARIABLE
from tidemark.stack.files import env_text, write_private
from tidemark.stack.local import LocalStack


def by_connections(stack: LocalStack, folder: Path) -> dict[str, str]:
    """Variables for Airflow: a file with what is no connection, and the connections."""
    found = stack.settings
    file = folder / "deployment.env"
    write_private(file, env_text({"TIDEMARK_BUCKET": found.bucket, "TIDEMARK_JARS_DIR": str(found.jars_dir)}))
    connections = {
        "KAFKA": {"conn_type": "kafka", "extra": {"bootstrap.servers": found.kafka_bootstrap, "group.id": "airflow"}},
        "S3": {
            "conn_type": "aws",
            "login": found.s3_access_key.get_secret_value(),
            "password": found.s3_secret_key.get_secret_value(),
            "extra": {"endpoint_url": found.s3_endpoint, "region_name": found.s3_region},
        },
        "CATALOG": {"conn_type": "generic", "host": found.catalog_uri},
    }
    return {
        ENV_FILE_VARIABLE: str(file),
        # AWS's clients would find the stack's keys without any connection.
        "AWS_ACCESS_KEY_ID": "of-nobody",
        "AWS_SECRET_ACCESS_KEY": "of-nobody",
        **{f"AIRFLOW_CONN_TIDEMARK_{name}": json.dumps(fields) for name, fields in connections.items()},
    }
