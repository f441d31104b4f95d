import pytest
from pydantic import ValidationError

from fedsim.fleet import GroupConfig, ServerConfig, build_fleet, devices
from fedsim.fleet.power import POWERS, RADIOS, EnergyConfig, Power, RadioConfig, radio_powers
from fedsim.rng import Key
from fedsim.units import parse


def test_each_quantity_is_named_after_its_unit_and_is_zero_if_left_out() -> None:
    units = {"power": "_w", "time": "_s"}
    for name, quantity in POWERS.items():
        assert quantity.attribute == name + units[str(quantity.spread.dimension)]
        assert quantity.default == 0
        assert quantity.doc
    assert list(Power._fields) == [quantity.attribute for quantity in POWERS.values()]


def test_a_radio_takes_the_place_of_the_powers_for_transfers() -> None:
    group = GroupConfig.model_validate({"count": 2, "radio": "lte", "compute_power": "3 W"})
    fleet = build_fleet([group], ServerConfig(), Key.root(0))
    assert fleet.values("receive_power").tolist() == fleet.values("transmit_power").tolist() == [1.28804] * 2
    assert fleet.values("transmit_per_mbit_s")[0] == 0.43839
    assert fleet.values("receive_per_mbit_s")[0] == 0.05197
    assert (fleet.values("radio_tail")[0], fleet.values("tail_power")[0]) == (11.576, 1.06)
    assert fleet.values("compute_power")[0] == 3
    table = {
        "base": "1 W",
        "up_per_mbit_s": "2 W",
        "down_per_mbit_s": "3 W",
        "tail": "4 s",
        "tail_power": "5 W",
    }
    own = GroupConfig.model_validate({"count": 1, "radio": table}).profile().config
    values = [getattr(own, name).value for name in POWERS if name not in ("compute_power", "idle_power")]
    assert values == [1, 1, 3, 2, 5, 4]


@pytest.mark.parametrize("name", RADIOS)
def test_a_radio_is_spelt_exactly(name: str) -> None:
    laws = RadioConfig.model_validate(RADIOS[name]).quantities()
    for quantity, text in radio_powers(name).items():
        dimension = POWERS[quantity].spread.dimension
        assert dimension is not None
        assert parse(text, dimension) == laws[quantity].value


def test_a_run_is_the_same_whatever_its_devices_draw() -> None:
    group = GroupConfig.model_validate({"count": 2, "device": "low"}).explicit()
    written = group.model_dump(mode="json", exclude_none=True)
    assert not {*POWERS, "radio"} & set(written)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"radio": "lt"}, "no radio is called 'lt'"),
        ({"radio": "wifi", "receive_power": "1 W"}, "a radio takes the place of 'receive_power'"),
        ({"compute_power": "-1 W"}, "'-1 W' is negative"),
        ({"compute_power": "3"}, "'3' has no unit"),
        ({"radio": {"tail": "3 W"}}, "'3 W' is a power"),
    ],
)
def test_faults_teach(entry: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        GroupConfig.model_validate({"count": 1, **entry})


def test_the_server_draws_more_than_its_computers() -> None:
    config = EnergyConfig.model_validate({"server_power": "100 W", "pue": 1.5})
    assert config.server_power_w == 150
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        EnergyConfig.model_validate({"pue": 0.5})


def test_all_built_in_classes_draw_power() -> None:
    for name in devices.PLUGINS:
        if name not in ("table", "server"):
            group = GroupConfig.model_validate({"count": 50, "device": name})
            fleet = build_fleet([group], ServerConfig(), Key.root(0))
            for power in ("compute_power", "receive_power", "transmit_power"):
                assert (fleet.values(power) > 0).all()
