"""The two wheels, installed as other people install them."""
