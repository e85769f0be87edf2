"""Checks of everything a deployment needs, before anything runs."""
