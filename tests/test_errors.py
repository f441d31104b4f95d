import inspect

import pytest

from fedsim import errors
from fedsim.errors import Fault, FedsimError, RunError, ScenarioError, UserError

OWN = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, Exception)]


def test_everything_raised_on_purpose_has_one_base() -> None:
    assert all(issubclass(cls, FedsimError) for cls in OWN)
    assert not any(issubclass(cls, UserError) and issubclass(cls, RunError) for cls in OWN)


@pytest.mark.parametrize("cls", OWN)
def test_every_error_is_in_the_tree_of_the_docstring(cls: type[Exception]) -> None:
    lines = (errors.__doc__ or "").splitlines()
    (line,) = [text for text in lines if cls.__name__ in text.split()]
    depth = line.index(cls.__name__)
    above = [text for text in lines[: lines.index(line)] if text.strip() and "Error" in text]
    parent = next((text for text in reversed(above) if _column(text) < depth), None)
    base = cls.__bases__[0]
    assert base is Exception if parent is None else base.__name__ in parent.split()


def _column(line: str) -> int:
    word = next(word for word in line.split() if word.endswith("Error"))
    return line.index(word)


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (Fault("fleet.0.count", "0 is not positive"), "fleet.0.count: 0 is not positive"),
        (
            Fault("run.seed", "'x' is no integer", "write seed = 0"),
            "run.seed: 'x' is no integer — write seed = 0",
        ),
        (Fault("", "the file is empty"), "the file is empty"),
    ],
)
def test_a_fault_says_where_what_and_how_to_mend_it(fault: Fault, text: str) -> None:
    assert str(fault) == text


def test_a_scenario_error_lists_all_faults_in_order() -> None:
    faults = [Fault("b", "is wrong", "write 1"), Fault("a", "is too")]
    error = ScenarioError(faults, "tiny.toml")
    assert str(error) == "tiny.toml: 2 faults\n  b: is wrong — write 1\n  a: is too"
    assert (error.faults, error.source) == (tuple(faults), "tiny.toml")


def test_one_fault_is_not_faults() -> None:
    assert str(ScenarioError([Fault("a", "is wrong")])) == "scenario: 1 fault\n  a: is wrong"
