"""Several start models of one architecture: clients that have one each."""

from types import SimpleNamespace
from typing import Any

import pytest

from fedsim.params import Model
from fedsim.runtime import start_values

SCALARS = 64 * 16 + 16 + 16 * 10 + 10


@pytest.mark.parametrize("name", [pytest.param("ktpfl", marks=pytest.mark.slow), "local"])
def test_clients_can_start_each_in_its_own_way(name: str, world: Any) -> None:
    result = world.check_every_way(lambda: world.algorithm(name, same_start=False))
    assert result.model_hash != world.run(world.algorithm(name)).model_hash


@pytest.mark.parametrize("name", ["dsfl", "fedmd", "fedme", "fml", "ktpfl", "local", "perfed_ckt"])
def test_who_starts_alike_is_a_setting(name: str, world: Any) -> None:
    def variants(same: bool) -> list[int]:
        asked = list[int]()

        def initial_model(label: str | None, *, variant: int) -> Model:
            asked.append(variant)
            return Model("mlp", {})

        for number in range(3):
            world.algorithm(name, same_start=same).join(
                SimpleNamespace(client=number, initial_model=initial_model)
            )
        return asked

    assert variants(same=True) == [0, 0, 0]
    assert variants(same=False) == [1, 2, 3]


def test_variants_are_those_of_every_party(world: Any) -> None:
    first, second = (world.parts(world.algorithm("local")).initial() for _ in range(2))
    digests = [first("mlp", variant).digest() for variant in range(5)]
    assert len(set(digests)) == 5
    assert [second("mlp", variant).digest() for variant in reversed(range(5))] == digests[::-1]
    assert first("mlp").digest() == digests[0]
    assert first("mlp") is first("mlp", 0)


def test_a_million_variants_are_not_kept(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_values, "MAX_KEPT_BYTES", 3 * 4 * SCALARS)
    made = world.parts(world.algorithm("local")).initial()
    are_kept = [made("mlp", variant) is made("mlp", variant) for variant in range(1, 6)]
    assert are_kept == [True, True, True, False, False]
    assert made("mlp") is made("mlp")  # whatever else was asked for
