"""The parameters with which the variants of a study or a comparison run."""

from __future__ import annotations

from collections.abc import Mapping

from fedsim.report.number_format import NOTHING
from fedsim.report.text_table import Pairs, TextTable
from fedsim.scenario.algorithm_params import params_text, unlike_params
from fedsim.studies.plan import StudyPlan


def variant_params(plan: StudyPlan) -> dict[str, dict[str, str]]:
    """Return the parameters of each variant's algorithm; values that vary in the study are all there."""
    values: dict[str, dict[str, dict[str, None]]] = {}
    for setting, candidates in plan.candidates.items():
        own = values.setdefault(setting.variant, {})
        for candidate in candidates:
            for name, text in params_text(candidate.scenario.algorithm.params).items():
                own.setdefault(name, {})[text] = None
    return {
        variant: {name: " or ".join(texts) for name, texts in own.items()} for variant, own in values.items()
    }


def params_table(plan: StudyPlan) -> TextTable:
    """Return the parameters of all variants side by side."""
    variants = variant_params(plan)
    names = dict.fromkeys(name for own in variants.values() for name in own)
    rows = [(name, *(own.get(name, NOTHING) for own in variants.values())) for name in names]
    notes = [f"{NOTHING}: the algorithm does not have the parameter, or it has no value"]
    return TextTable(("parameter", *variants), rows, notes, title="Parameters of the algorithms")


def params_facts(plan: StudyPlan) -> Pairs:
    """Return the parameters of each variant in a line."""
    return [(f"parameters of {variant}", params_line(own)) for variant, own in variant_params(plan).items()]


def params_line(params: Mapping[str, str]) -> str:
    """Return parameters in a line."""
    return ", ".join(f"{name} = {text}" for name, text in params.items()) or "none"


def plan_remarks(plan: StudyPlan) -> list[str]:
    """Return a remark on each variant that lacks parameters which a related one was given."""
    return unlike_params(
        {setting.variant: candidates[0].scenario for setting, candidates in plan.candidates.items()}
    )
