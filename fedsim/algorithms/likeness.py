"""Whether a model that has arrived is of the architecture that belongs there (specification 3.5, E12)."""

from __future__ import annotations

from fedsim.algorithms.contexts import ServerContext
from fedsim.params import Model


def unlike(model: Model, wanted: Model) -> str | None:
    """Say how a model differs from what is wanted in label, names, shapes or dtypes; None if it does not."""
    if model.architecture != wanted.architecture:
        return f"architecture {model.architecture!r}, not {wanted.architecture!r}"
    for ours, theirs in ((wanted.params, model.params), (wanted.buffers, model.buffers)):
        if ours.keys() != theirs.keys():
            return f"other names than architecture {wanted.architecture!r} has"
        for name, array in ours.items():
            if (array.shape, array.dtype) != (theirs[name].shape, theirs[name].dtype):
                return f"{name}: {theirs[name].dtype}{theirs[name].shape}, not {array.dtype}{array.shape}"
    return None


def strange(server: ServerContext, model: Model) -> str | None:
    """Say why a model is of no architecture of the run, whichever; None if it is of one."""
    try:
        wanted = server.initial_model(model.architecture)
    except KeyError:
        return f"architecture {model.architecture!r}, which the run does not have"
    return unlike(model, wanted)
