"""Each mutant of fedsim is found by a seed below 200.

``tools/mutant_seeds.py`` looks for such seeds, as is needed when the seeds' scenarios have changed.
"""

import inspect
from pathlib import Path

import pytest

from fedsim.fuzz.examine import examine
from fedsim.fuzz.random_scenarios import random_scenario
from tests.fuzz import mutants

FOUND: dict[str, tuple[int, str]] = {
    "lease_that_drops_nothing": (3, "neither merged, dropped nor rejected"),
    "client_that_stays_busy": (26, "nobody was asked in round 2, though client 0 was there"),
    "late_reply_that_is_merged": (3, "dropped: rounds sum to 8, the table of dispatches to 6"),
    "reply_that_is_lost": (3, "neither merged, dropped nor rejected"),
    "copy_that_is_delivered": (29, "was late, and then merged"),
    "copy_that_is_merged": (29, "was merged twice"),
    "copy_that_ends_again": (29, "ns without having begun"),
    "drop_that_is_not_told": (3, "summary.drops: it says 0, the trace 7"),
    "drop_at_an_earlier_instant": (2, "time went back"),
    "round_that_counts_bytes_again": (3, "rounds sum to Totals"),
    "byte_too_many": (2, "of the frames up, the trace has"),
    "frame_that_counts_twice": (2, "the ledger's rows down sum to"),
    "loss_that_is_not_recorded": (151, "transfers of the trace have no end"),
    "retries_without_end": (4, "the frame down of dispatch 1 of client 0 was sent again 51 times"),
    "job_without_an_end": (2, "jobs began and never ended"),
    "job_that_ends_again": (2, "('job', 1, 0, 'fit') ended at 101241913 ns without having begun"),
    "client_that_works_on": (23, "which was abandoned before"),
    "level_that_is_not_told": (10, "trace: 0 levels of the battery of client"),
    "absence_without_an_end": (40, "summary.time.download_s"),
    "absence_that_begins_early": (8, "summary.time.compute_s"),
    "times_of_32_bits": (0, "of the table spent -1894967296 ns download"),
    "round_that_begins_early": (0, "rounds: 2 began at 0.0 s, not after 14.0 s"),
    "memory_that_is_not_needed": (38, "summary.ineligible: client 0 was asked"),
    "selector_that_chooses_twice": (1, "selector 'uniform' chose [0, 0, 2, 4]"),
    "fast_path_without_absences": (11, "would be another one if the cohort's hooks ran beforehand"),
    "fast_path_without_crashes": (23, "would be another one if the cohort's hooks ran beforehand"),
    "sums_in_the_order_of_workers": (1, "summary.json of the second run is another one"),
    "batches_of_the_fit_before": (5, "summary.json of the second run is another one"),
    "results_of_another_place": (0, "summary.json of the second run is another one"),
    "merge_that_changes_its_replies": (15, "hook merge_train changed its argument 1"),
    "flow_that_ends_early": (0, "a flow of 3808.0 bits has 0.0 to go, by its rates 2553.5"),
    "link_beyond_its_capacity": (9, "carries 20200.0 bit/s at "),
    "cells_beyond_the_servers_capacity": (9, "the server's link carries 4028781.425 bit/s at "),
    "number_that_is_received_otherwise": (16, "decodes to another message than was sent"),
    "evaluation_of_the_wrong_rounds": (13, "evaluations: of the rounds [], and due are [1]"),
    "evaluation_of_other_clients": (22, "evaluations: of other clients in one round than in another"),
    "evaluation_on_training_samples": (0, "evaluations: 17 samples of client 0, which has 16"),
    "late_reply_that_is_not_logged": (0, "log late[0].client: it says 'nothing', the trace 1"),
}
"""For each mutant a seed that finds it, and a part of what is said."""


def test_each_mutant_has_a_seed() -> None:
    planted = [name for name, value in vars(mutants).items() if inspect.isfunction(value)]
    assert {name for name in planted if vars(mutants)[name].__module__ == mutants.__name__} == FOUND.keys()


@pytest.mark.parametrize("name", FOUND)
def test_a_mutant_is_found(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seed, words = FOUND[name]
    getattr(mutants, name)(monkeypatch)
    found = examine(random_scenario(seed), tmp_path)
    assert found.end == "failed"
    assert words in "\n".join(found.faults)
