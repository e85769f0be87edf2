"""Tidemark's pages inside Airflow: a FastAPI app that the api-server mounts, with its rights, actions and files."""
