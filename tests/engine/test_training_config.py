import pytest
from pydantic import ValidationError

from fedsim.engine.optimisers import Adam, Clipped, Scheduled, Sgd
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
        ({"clip_norm": 0.0}, "greater than 0"),
        ({"clip_norm": float("inf")}, "finite"),
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


def scheduled(*schedules: dict[str, object], **settings: object) -> TrainingConfig:
    return TrainingConfig.model_validate({"lr": 0.4, "schedule": list(schedules), **settings})


HALVED: dict[str, object] = {"name": "exponential", "params": {"gamma": 0.5}}
BY_STEP = {**HALVED, "by": "step"}


def test_a_round_has_the_learning_rate_of_its_position() -> None:
    config = scheduled(HALVED)
    # What comes before the first round, and after the last, has the rate of that one.
    assert [config.in_round(number, 3).lr for number in range(5)] == [0.4, 0.4, 0.2, 0.1, 0.1]
    assert config.in_round(2, 3).make_optimiser() == Sgd(0.2)
    assert config.in_round(2, 3).make_optimiser(0.7) == Sgd(0.7)
    falling = scheduled({"name": "polynomial"}, optimiser="adam")
    assert [falling.in_round(number, 4).make_optimiser() for number in (1, 3)] == [Adam(0.4), Adam(0.2)]


def test_without_schedules_by_round_a_round_changes_nothing() -> None:
    for config in (TrainingConfig(), scheduled(BY_STEP)):
        assert config.in_round(7, 9) is config


def test_steps_have_their_own_rates_and_a_rate_that_is_given_has_none() -> None:
    config = scheduled(BY_STEP)
    assert config.make_optimiser() == Scheduled(Sgd(0.4), config.schedule)
    assert config.make_optimiser(0.7) == Sgd(0.7)
    assert scheduled(HALVED).make_optimiser() == Sgd(0.4)
    assert config.total_rate(3) == pytest.approx(0.4 + 0.2 + 0.1)
    assert TrainingConfig(lr=0.1).total_rate(3) == 3 * 0.1
    assert config.total_rate(0) == 0


def test_every_optimiser_of_the_training_clips() -> None:
    config = scheduled(BY_STEP, clip_norm=2.0)
    assert config.make_optimiser() == Clipped(Scheduled(Sgd(0.4), config.schedule), 2.0)
    assert config.make_optimiser(0.7) == Clipped(Sgd(0.7), 2.0)
