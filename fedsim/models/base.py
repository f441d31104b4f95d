"""The base of models: a body of named blocks, a head, and a plugin that builds both for a task.

A net is a row of layers, its blocks and then its head, and can be cut between any two of them. FedPer keeps
the layers above a cut personal, FedGKT divides a net between a client and the server, and MOON takes the
features between body and head (specification 7.6). :mod:`fedsim.models.parts` has what cuts are for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from itertools import pairwise
from typing import Any, Generic, cast

import torch
from torch import nn

from fedsim.errors import DataError
from fedsim.plugins import C, Plugin, name_of
from fedsim.task import Task


def named(**modules: nn.Module) -> nn.Sequential:
    """Return a sequence of modules, each under its name: ``named(conv=nn.Conv2d(...), relu=nn.ReLU())``."""
    return nn.Sequential(OrderedDict(modules))


def dense(*widths: int) -> dict[str, nn.Module]:
    """Return blocks ``fc1``, ``fc2``, ..., linear layers with ReLU, from the first width to the last."""
    return {
        f"fc{i}": named(linear=nn.Linear(inputs, outputs), relu=nn.ReLU())
        for i, (inputs, outputs) in enumerate(pairwise(widths), start=1)
    }


class Net(nn.Module):
    """A model: named blocks, then a head that gives the logits.

    It can be cut between layers if one float32 tensor ``[b, ...]`` passes from one to the next, and if they
    share no parameters or buffers. A class derived from this one, or a body derived from ``nn.Sequential``,
    that computes in its own way cannot be cut.

    Attributes:
        body: The blocks in order; its output is the features, ``[b, f]``.
        head: From features to logits, ``[b, N]``.
    """

    def __init__(self, body: nn.Sequential, head: nn.Module) -> None:
        super().__init__()
        self.body = body
        self.head = head

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return raw scores ``[b, N]`` for samples ``[b, *input_shape]``; no softmax."""
        logits: torch.Tensor = self.head(self.body(x))
        return logits

    def features(self, x: torch.Tensor) -> torch.Tensor:
        """Return the head's input ``[b, f]`` for samples ``[b, *input_shape]``."""
        features: torch.Tensor = self.body(x)
        return features

    def part(self, start: int, stop: int) -> Net:
        """Return a net of some of the layers, from ``start`` to before ``stop``; the head is the last one.

        They are the same modules, under the names that they have here.
        """
        head = self.head if start <= len(self.body) < stop else nn.Sequential()
        return Net(cast("nn.Sequential", self.body[start:stop]), head)


class ModelPlugin(Plugin[C], ABC, Generic[C]):
    """Base of the models; the file's ``PLUGIN`` derives from it.

    A layer with parameters or buffers of its own must have a method ``reset_parameters()``, as PyTorch's do,
    or ``initialise(generator)``, that fills them (:mod:`fedsim.models.initialise`).
    """

    @abstractmethod
    def build(self, task: Task) -> Net:
        """Return a new net for ``task``; the values of its parameters do not matter.

        Called inside ``torch.device("meta")``, so the constructor names no device and reads no values.

        Raises:
            DataError: The task's samples do not have a shape that this model can take.
        """


def image_shape(plugin: ModelPlugin[Any], task: Task, smallest: int) -> tuple[int, int, int]:
    """Return ``(channels, height, width)`` of the task's samples.

    Args:
        plugin: The model, for the message.
        task: The task.
        smallest: Smallest height and width of an image, in pixels.

    Raises:
        DataError: The samples are not images, or they are too small.
    """
    refuse_texts(plugin, task)
    if len(task.input_shape) != 3 or min(task.input_shape[1:]) < smallest:
        raise DataError(
            f"model {name_of(plugin)!r} cannot take samples of shape {task.input_shape}: it needs images "
            f"(channels, height, width) of at least {smallest} x {smallest} pixels — use 'mlp' or 'linear', "
            f"which accept any shape, or another data set"
        )
    channels, height, width = task.input_shape
    return channels, height, width


def refuse_texts(plugin: ModelPlugin[Any], task: Task) -> None:
    """Raise if the samples are texts, because the numbers of tokens are names and not quantities.

    Raises:
        DataError: The task has a vocabulary.
    """
    if task.vocabulary:
        raise DataError(
            f"model {name_of(plugin)!r} cannot take texts, here of {task.vocabulary} different tokens: it "
            f"computes with the values of samples, but the number of a token is not a quantity — use "
            f"'lstm_text', or 'lstm_chars' for the next character, or another data set"
        )


def vocabulary_of(plugin: ModelPlugin[Any], task: Task) -> int:
    """Return the number of different tokens in the task's texts.

    Raises:
        DataError: The samples are not texts of one length of at least 1.
    """
    if not task.vocabulary or len(task.input_shape) != 1 or task.input_shape[0] < 1:
        raise DataError(
            f"model {name_of(plugin)!r} cannot take {task.dtype} samples of shape {task.input_shape} with a "
            f"vocabulary of {task.vocabulary}: it needs texts, tokens of shape (length,) with a vocabulary — "
            f"use 'mlp' or 'linear', which accept other samples of any shape, or a data set of texts"
        )
    return task.vocabulary
