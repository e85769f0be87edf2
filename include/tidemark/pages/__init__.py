"""The pages that people see in Airflow, as HTML and SVG made from values. Nothing here knows Airflow."""
