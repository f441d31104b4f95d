"""What a scenario may say of codecs."""

from __future__ import annotations

from typing import Any

import pytest

from fedsim.wire.codecs.choices import NO_CODECS, CodecConfig


def faults(**ways: Any) -> dict[str, str]:
    return {fault.path: fault.problem for fault in CodecConfig.model_validate(ways).faults()}


def test_by_default_nothing_is_coded() -> None:
    assert not NO_CODECS.is_on()
    assert not [*NO_CODECS.faults()]
    assert CodecConfig.model_validate({"up": {"models": {"chain": ["int8"]}}}).is_on()


@pytest.mark.parametrize(
    ("ways", "path", "says"),
    [
        ({"down": {"models": {"chain": ["delta"]}}}, "codec.down.models.chain.0", "what each client holds"),
        ({"down": {"models": {"chain": ["sign"]}}}, "codec.down.models.chain.0", "whole models go down"),
        (
            {"up": {"models": {"chain": ["int8", "delta"]}}},
            "codec.up.models.chain.1",
            "'delta' is behind 'int8'",
        ),
        ({"up": {"models": {"chain": ["int8", "float16"]}}}, "codec.up.models.chain.1", "leaves no values"),
        ({"up": {"models": {"chain": ["hard_labels"]}}}, "codec.up.models.chain.0", "codes predictions"),
        ({"up": {"logits": {"chain": ["topk"]}}}, "codec.up.logits.chain.0", "codes changes of models"),
        ({"up": {"models": {"error_feedback": True}}}, "codec.up.models.error_feedback", "no codec leaves"),
        (
            {"up": {"logits": {"chain": ["int8"], "error_feedback": True}}},
            "codec.up.logits.error_feedback",
            "changes of models",
        ),
    ],
)
def test_what_makes_no_sense_is_told(ways: dict[str, Any], path: str, says: str) -> None:
    assert says in faults(**ways)[path]


@pytest.mark.parametrize(
    "chain", [["delta", "topk", "int8", "zstd"], ["int8", "zstd"], ["delta", "lowrank", "int4"]]
)
def test_what_makes_sense(chain: list[str]) -> None:
    assert not faults(up={"models": {"chain": chain}})


def test_codecs_of_varying_length_have_others_of_the_longest() -> None:
    config = CodecConfig.model_validate({"up": {"models": {"chain": ["int8", "zstd"]}}})
    assert not config.has_fixed_lengths
    longest = config.at_longest()
    assert longest.has_fixed_lengths
    assert not [*longest.faults()]
    assert [one.name for one in longest.up.models.chain] == ["int8", "fedsim.wire.codecs.zstd.Stored"]
