"""Fits whose results are computed when somebody first looks at them.

Virtual time needs the cost of a fit and the shapes of what it gives, never its values. So when its time is
over, a fit gives models of pending trees. They are computed when an array is looked at, mostly in the merge,
when the whole cohort is there and can be trained together. What nobody can look at any more is not computed.
A fit that fails does so where its result is first looked at, which is the same event in every run.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

from fedsim.engine.jobs import Call, Evaluate, Fit, Fitted, Job, Predict
from fedsim.errors import JobError
from fedsim.params import Form, Model, PendingTree, RowTree, Tree
from fedsim.walk import instances

Part = Literal["params", "buffers"]
PARTS: tuple[Part, Part] = ("params", "buffers")


def can_wait(job: Job) -> bool:
    """Say whether a job's result may be pending: a fit's, unless its optimiser's state is asked for too."""
    return isinstance(job, Fit) and job.num_steps > 0 and job.states is None


class PendingFits:
    """Makes the results of fits that are computed later."""

    def __init__(self) -> None:
        # By architecture the last start values and their form: a cohort mostly starts from the same ones.
        self._forms: dict[tuple[str, Part], tuple[Tree, Form]] = {}

    def fitted(self, job: Fit, compute: Callable[[], Fitted], cancel: Callable[[], object]) -> Fitted:
        """Return the result of a fit, to be computed later.

        Args:
            job: The fit.
            compute: Gives the result; called at most once, unless it raises.
            cancel: Called instead where nobody can look at the result any more.
        """
        result, models = FitResult(compute, cancel), {}
        for name in job.trained:
            start = job.models[name]
            label = start.architecture
            params = self._tree(result, name, label, "params", start.params) if start.params else {}
            buffers = self._tree(result, name, label, "buffers", start.buffers) if start.buffers else {}
            models[name] = Model(label, params, buffers)
        outputs: Tree = {}
        if job.outputs:
            form = Form.of(job.outputs)
            outputs = PendingTree(form, partial(result.outputs, form))
        return Fitted(models, result.loss, job.num_steps, outputs=outputs)

    def _tree(self, result: FitResult, name: str, label: str, part: Part, start: Tree) -> Tree:
        form = self._form(label, part, start)
        return PendingTree(form, partial(result.tree, name, part, form))

    def _form(self, label: str, part: Part, start: Tree) -> Form:
        known, form = self._forms.get((label, part), (None, None))
        if known is not start or form is None:
            form = Form.of(start)
            self._forms[label, part] = start, form
        return form


def compute_inputs(job: Job) -> None:
    """Compute what is pending in a job's inputs, before the job is handed to another thread.

    So a client that trains in every round and is never looked at holds one pending fit, not one a round.
    """
    match job:
        case Fit():
            for model in job.models.values():
                model.compute()
            for extra in job.extras.values():
                if isinstance(extra.value, PendingTree):
                    extra.value.computed()
        case Predict(model) | Evaluate(model):
            model.compute()
        case Call(arguments=arguments):
            for tree in instances(arguments, PendingTree):
                tree.computed()


class FitResult:
    """The result of one fit, shared by all its pending trees.

    Args:
        compute: Gives the result; called at most once, unless it raises.
        cancel: Called instead where nobody can look at the result any more.
    """

    __slots__ = ("_cancel", "_compute", "_fitted")

    def __init__(self, compute: Callable[[], Fitted], cancel: Callable[[], object]) -> None:
        self._compute = compute
        self._cancel = cancel
        self._fitted: Fitted | None = None

    def __del__(self) -> None:
        if self._fitted is None:
            self._cancel()

    def result(self) -> Fitted:
        """Return the result, after computing it if need be."""
        if self._fitted is None:
            self._fitted = self._compute()
            del self._compute  # and with it what the fit began from
        return self._fitted

    def loss(self) -> float:
        """Return the loss."""
        return self.result().loss

    def tree(self, name: str, part: Part, form: Form) -> Tree:
        """Return the parameters or the buffers of a trained model, which have this form."""
        tree: Tree = getattr(self.result().models[name], part)
        if (change := form_change(form, tree)) is not None:
            raise JobError(
                f"a fit changed the form of its model's {part}: {change}. Training keeps names, shapes and "
                "dtypes: let layers write into their buffers"
            )
        return tree

    def outputs(self, form: Form) -> Tree:
        """Return the outputs, which have this form."""
        tree = self.result().outputs
        if (change := form_change(form, tree)) is not None:
            raise JobError(
                f"a step changed the form of the job's outputs: {change}. They keep the names, shapes and "
                "dtypes with which the job began"
            )
        return tree


def form_change(before: Form, after: Tree) -> str | None:
    """Return the first difference in names, shapes or dtypes, or None."""
    if type(after) is RowTree and after.form is before:
        return None
    if list(before) != list(after):
        return f"names {', '.join(after)} instead of {', '.join(before)}"
    for (name, form), array in zip(before.items(), after.values(), strict=True):
        if (form.dtype, form.shape) != (array.dtype, array.shape):
            return f"{name!r} is {array.dtype}{array.shape} instead of {form.dtype}{form.shape}"
    return None
