import pytest
from pydantic import ValidationError

from fedsim.engine.optimisers import Adam, Sgd
from fedsim.engine.training_config import TrainingConfig


def test_the_optimiser_is_made_from_the_settings() -> None:
    config = TrainingConfig(lr=0.2, momentum=0.9, weight_decay=1e-4)
    assert config.make_optimiser() == Sgd(0.2, 0.9, 1e-4)
    assert config.make_optimiser(0.01) == Sgd(0.01, 0.9, 1e-4)
    assert TrainingConfig(optimiser="adam", lr=1e-3, weight_decay=0.1).make_optimiser() == Adam(1e-3, 0.1)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"epochs": 1, "steps": 5}, "give one of them, not both"),
        ({"optimiser": "adam", "momentum": 0.9}, "leave it out"),
        ({"lr": 0.0}, "greater than 0"),
        ({"batch_size": 0}, "greater than or equal to 1"),
        ({"epochs": -1}, "greater than or equal to 0"),
        ({"momentum": 1.0}, "less than 1"),
        ({"optimiser": "sgdm"}, "'sgd' or 'adam'"),
        ({"keep_optimiser": True}, "remembers nothing that could be kept"),
        ({"keep_optimiser": True, "momentum": 0.0}, "set momentum, take adam, or leave it out"),
        ({"learning_rate": 0.1}, "no key is called .learning_rate. here"),
        ({"lr": float("nan")}, "finite"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, object], match: str) -> None:
    with pytest.raises(ValidationError, match=match):
        TrainingConfig.model_validate(settings)


@pytest.mark.parametrize("settings", [{"momentum": 0.9}, {"optimiser": "adam"}])
def test_an_optimiser_that_remembers_something_can_be_kept(settings: dict[str, object]) -> None:
    assert TrainingConfig.model_validate({"keep_optimiser": True, **settings}).keep_optimiser
    assert not TrainingConfig.model_validate(settings).keep_optimiser


def test_a_fault_hides_no_other() -> None:
    settings = {"lr": -1.0, "epochs": 1, "steps": 1, "optimiser": "adam", "momentum": 0.5}
    with pytest.raises(ValidationError) as caught:
        TrainingConfig.model_validate(settings)
    assert [line["loc"] for line in caught.value.errors()] == [("lr",), ("steps",), ("momentum",)]
