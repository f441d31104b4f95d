"""A tiny scenario."""

import pytest


@pytest.fixture
def scenario() -> str:
    """Return the scenario in TOML, as a server sends it."""
    return """
[run]
rounds = 2

[data]
name = "digits"
limit = 200
global_test = 0.1

[data.public]
size = 20

[models.linear]

[[fleet]]
count = 4
device = "high"
"""
