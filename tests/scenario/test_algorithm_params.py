"""Variants that share parameters with a parent, and lack what the parent was given."""

from collections.abc import Callable
from typing import Any

import pytest

from fedsim.algorithms.centralized import Centralized
from fedsim.algorithms.fedmd import FedMD
from fedsim.scenario import Scenario
from fedsim.scenario.algorithm_params import params_text, unlike_params

Load = Callable[..., Scenario]

MINE = f"{__name__}.EntropyMD"
TABLE = f'[algorithms."{MINE}"]'
PUBLIC = "[data.public]\nsize = 40\n"
OF_FEDMD = PUBLIC + '[algorithms.fedmd]\ndigest_epochs = 5\ndigest = "mae"\n'


class EntropyMD(FedMD):
    """A private plugin."""


class Pooled(Centralized):
    """One whose parent is not the class that its file offers."""


def remarks(load: Load, text: str, *algorithms: str, **options: Any) -> list[str]:
    return unlike_params({name: load(text, algorithm=name, **options) for name in algorithms})


def test_parameters_as_text_lack_those_without_a_value(load: Load) -> None:
    text = params_text(load(PUBLIC, algorithm="fedmd").algorithm.params)
    assert (text["digest"], text["digest_epochs"], text["same_start"]) == ('"mae"', "1", "true")
    assert "digest_lr" not in text


@pytest.mark.parametrize("algorithms", [(MINE,), ("fedmd", MINE)])
def test_a_subclass_that_lacks_what_its_parent_was_given(load: Load, algorithms: tuple[str, ...]) -> None:
    # digest = "mae" is the default, and so is equal.
    assert remarks(load, OF_FEDMD, *algorithms) == [
        f"{MINE} has digest_epochs = 1 (fedmd: 5): {MINE} is a subclass of fedmd, but the parameters of one "
        f"do not apply to the other; write {TABLE} digest_epochs = 5 for equal settings, or the present "
        "values to keep them"
    ]


def test_what_the_remark_says_to_write_silences_it(load: Load) -> None:
    for value in (5, 1):
        assert not remarks(load, f"{OF_FEDMD}{TABLE}\ndigest_epochs = {value}\n", "fedmd", MINE)


def test_a_table_that_lacks_one_parameter_is_to_be_completed(load: Load) -> None:
    (remark,) = remarks(load, f"{OF_FEDMD}digest_lr = 0.1\n{TABLE}\ndigest_epochs = 5\n", "fedmd", MINE)
    assert remark.startswith(f"{MINE} has digest_lr = no value (fedmd: 0.1): ")
    assert f"; write among the parameters of {MINE} digest_lr = 0.1 for equal settings" in remark


def test_a_parent_that_lacks_what_a_subclass_was_given_where_both_are_compared(load: Load) -> None:
    text = f"{PUBLIC}{TABLE}\ndigest_epochs = 5\n"
    (remark,) = remarks(load, text, "fedmd", MINE)
    assert remark.startswith(f"fedmd has digest_epochs = 1 ({MINE}: 5): {MINE} is a subclass of fedmd,")
    assert "; write [algorithms.fedmd] digest_epochs = 5 for" in remark
    assert not remarks(load, text, "fedmd")


def test_values_for_all_are_those_of_all(load: Load) -> None:
    assert not remarks(load, PUBLIC, "fedmd", MINE, overrides=["algorithm.params.digest_epochs=5"])


def test_defaults_that_a_method_has_of_its_own_are_no_remark(load: Load) -> None:
    assert not remarks(load, "", "fedavg", "apfl")  # the means of which are weighted otherwise
    assert remarks(load, '[algorithms.fedavg]\nweighting = "uniform"\n', "apfl", "fedprox", "local") == [
        'fedprox has weighting = "samples" (fedavg: "uniform"): fedprox is a subclass of fedavg, but the '
        'parameters of one do not apply to the other; write [algorithms.fedprox] weighting = "uniform" for '
        "equal settings, or the present values to keep them"
    ]


def test_a_class_in_the_file_of_a_plugin_is_its_parent_too(load: Load) -> None:
    (remark,) = remarks(load, "[algorithms.centralized]\nupload = true\n", f"{__name__}.Pooled")
    assert f"{__name__}.Pooled is a subclass of centralized" in remark
