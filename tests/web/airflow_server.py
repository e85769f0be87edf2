"""Run as a program: Airflow's own API app with the plugin, over a database that knows the DAGs of a folder.

Every DAG belongs to the team ``north``. It prints one line of JSON, the token of each user and the routes of the pages,
and then serves on the given port.
"""

import json
import sys
from pathlib import Path

import uvicorn
from airflow.api_fastapi.app import cached_app, get_auth_manager
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
from airflow.models.dagbundle import DagBundleModel
from airflow.models.team import Team
from airflow.utils.db import initdb
from airflow.utils.session import create_session
from sqlalchemy import select

BUNDLE = "dags-folder"


def main(folder: str, port: int) -> None:
    initdb()
    with create_session() as session:
        bundle = DagBundleModel(name=BUNDLE)
        bundle.teams = [Team(name="north")]
        session.add_all([bundle, Team(name="south")])
    bag = DagBag(folder, bundle_path=Path(folder), bundle_name=BUNDLE)
    assert not bag.import_errors, bag.import_errors
    sync_bag_to_db(bag, BUNDLE, None)
    with create_session() as session:
        assert session.scalar(select(DagBundleModel.name)) == BUNDLE
    app = cached_app()
    users = {item.username: get_auth_manager().generate_jwt(item) for item in SimpleAuthManager.get_users()}
    sys.stdout.write(json.dumps({"tokens": users, "routes": _routes()}) + "\n")
    sys.stdout.flush()
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")


def _routes() -> list[tuple[str, list[str]]]:
    from tidemark_airflow.pages.app import create_pages

    return [(route.path, sorted(route.methods)) for route in create_pages().routes]  # type: ignore[attr-defined]


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
