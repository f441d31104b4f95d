"""Fits of clients that hold equally many samples, handed to an executor together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast, overload

import numpy as np

from fedsim.engine.jobs import ClientSamples, Fit, Fitted, Samples
from fedsim.engine.pending_fit import PARTS, Part
from fedsim.engine.worker_state import Resources
from fedsim.params import Array, Model, Tree, all_finite


@dataclass(frozen=True, slots=True, eq=False)
class LikeFits:
    """Fits that differ in whose samples they train on, and in their seeds.

    Attributes:
        fit: That of the first client.
        clients: All clients.
        seeds: Of their fits.
    """

    fit: Fit
    clients: Sequence[int]
    seeds: Sequence[int]

    def __len__(self) -> int:
        return len(self.clients)

    def __getitem__(self, number: int) -> Fit:
        return self.fit if number == 0 else self.fit.of_client(self.clients[number], self.seeds[number])


class LikeFitted(NamedTuple):
    """The results of like fits.

    Attributes:
        trees: Of each trained model, by its name and the part of it, the tree of each client.
        errors: What was raised instead, by the number of the fit.
        are_in_range: Whether no scalar of any tree is :func:`fedsim.params.out_of_range`; False: not known.
    """

    trees: Mapping[tuple[str, Part], Sequence[Tree]]
    errors: Mapping[int, BaseException] = {}
    are_in_range: bool = False

    @classmethod
    def of(cls, fits: LikeFits, results: Sequence[Fitted | BaseException]) -> LikeFitted:
        """Return results of fits as the results of like fits."""
        errors = {number: each for number, each in enumerate(results) if isinstance(each, BaseException)}
        trees: dict[tuple[str, Part], list[Tree]] = {}
        for name in fits.fit.trained:
            for part in PARTS:
                trees[name, part] = [
                    {} if isinstance(each, BaseException) else getattr(each.models[name], part)
                    for each in results
                ]
        distinct = {id(tree): tree for of_all in trees.values() for tree in of_all}
        return cls(trees, errors, are_in_range=not errors and all(map(all_finite, distinct.values())))

    def of_fit(self, fits: LikeFits, number: int) -> Fitted:
        """Return the result of one of the fits, without its loss; raise what it raised."""
        if (error := self.errors.get(number)) is not None:
            raise error
        job, models = fits.fit, {}
        for name in job.trained:
            params, buffers = [self.trees[name, part][number] for part in PARTS]
            models[name] = Model(job.models[name].architecture, params, buffers)
        return Fitted(models, float("nan"), job.num_steps)


@dataclass(frozen=True, slots=True, eq=False)
class FitList(Sequence[Fit]):
    """Fits of one kind, of which those of like fits are made when they are asked for.

    Attributes:
        templates: What each fit is, but for its client's samples and its seed where it is one of like fits.
        clients: The clients of like fits; None for others.
        seeds: Of all.
    """

    templates: Sequence[Fit]
    clients: Sequence[int | None]
    seeds: Sequence[int]

    @classmethod
    def of(cls, jobs: Sequence[Fit | LikeFits]) -> FitList:
        """Return the fits that these are, one after the other."""
        templates, clients, seeds = list[Fit](), list[int | None](), list[int]()
        for job in jobs:
            if isinstance(job, LikeFits):
                templates += [job.fit] * len(job)
                clients += job.clients
                seeds += job.seeds
            else:
                templates.append(job)
                clients.append(None)
                seeds.append(job.seed)
        return cls(templates, clients, seeds)

    def __len__(self) -> int:
        return len(self.templates)

    @overload
    def __getitem__(self, place: int) -> Fit: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Fit]: ...
    def __getitem__(self, place: int | slice) -> Fit | Sequence[Fit]:
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(len(self)))]
        template, client = self.templates[place], self.clients[place]
        return template if client is None else template.of_client(client, self.seeds[place])

    def chosen(self, places: Sequence[int]) -> FitList:
        """Return some of them."""
        return FitList(
            [self.templates[place] for place in places],
            [self.clients[place] for place in places],
            [self.seeds[place] for place in places],
        )

    @property
    def num_steps(self) -> Array:
        """The number of steps of each, int64 ``[fits]``."""
        return np.array([template.num_steps for template in self.templates])

    def counts(self, resources: Resources) -> list[tuple[int, ...]]:
        """Return how many samples each stream of each fit has."""
        counts: dict[int, tuple[int, ...]] = {}
        for template in {id(template): template for template in self.templates}.values():
            streams = template.streams.values()
            counts[id(template)] = tuple([resources.num_samples(stream.samples) for stream in streams])
        return [counts[id(template)] for template in self.templates]

    def samples(self, stream: str) -> list[Samples]:
        """Return the samples of a stream of each fit."""
        return [
            its if client is None or not isinstance(its, ClientSamples) else ClientSamples(client, its.split)
            for its, client in zip(
                (template.streams[stream].samples for template in self.templates), self.clients, strict=True
            )
        ]

    def rows(self, stream: str, resources: Resources) -> Array | None:
        """Return the positions in the pool of the samples of a stream, of one client after the other.

        None where these are not clients' own samples of one split.
        """
        given = [template.streams[stream].samples for template in self.templates]
        splits = {its.split if isinstance(its, ClientSamples) else None for its in given}
        split = splits.pop()
        if splits or split is None:
            return None
        own = [
            cast(ClientSamples, its).client if client is None else client
            for its, client in zip(given, self.clients, strict=True)
        ]
        return resources.data.indices_of(np.array(own), split)
