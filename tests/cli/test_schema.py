import json
from collections.abc import Callable

from click.testing import Result


def test_the_schema_is_json(call: Callable[..., Result]) -> None:
    result = call("schema")
    assert result.exit_code == 0
    assert "fleet" in json.loads(result.stdout)["properties"]
