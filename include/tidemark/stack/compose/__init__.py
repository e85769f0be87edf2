"""The services of docker-compose.yaml: their secrets and configuration, and what is set up in them."""
