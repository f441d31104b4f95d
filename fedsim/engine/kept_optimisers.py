"""What a client's optimisers hold from one turn to the next, under ``training.keep_optimiser``.

An optimiser goes on from the last fit that was kept under the same name, with the same name of the model and
the same architecture; where one of the three is new, it begins anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedsim.engine.jobs import Fitted
from fedsim.params import Model, Tree, all_finite


class Keeping:
    """A party's memory of its optimisers in one turn; ``held`` is what it has from the turns before."""

    def __init__(self, held: Mapping[str, Tree]) -> None:
        self._held = dict(held)

    @property
    def held(self) -> Mapping[str, Tree]:
        """What is remembered by now."""
        return self._held

    def before(self, name: str, models: Mapping[str, Model], trained: Sequence[str]) -> Mapping[str, Tree]:
        """Return what the optimisers of a fit go on from, by the model's name, if anything."""
        keys = {model: _key(name, model, models[model]) for model in trained}
        return {model: self._held[key] for model, key in keys.items() if key in self._held}

    def after(self, name: str, models: Mapping[str, Model], fitted: Fitted) -> None:
        """Remember what the optimisers of a fit have come to.

        Nothing is remembered where a state or its model is not finite: the next fit begins anew.
        """
        for model, trained in fitted.models.items():
            key, state = _key(name, model, models[model]), fitted.states.get(model, {})
            if state and all_finite(state) and trained.is_finite():
                self._held[key] = state
            else:
                self._held.pop(key, None)


def _key(name: str, place: str, model: Model) -> str:
    # Quoted, so that no two run together.
    return f"{name!r} {place!r} {model.architecture!r}"
