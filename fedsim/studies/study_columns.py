"""The tables of a study, and what each of their columns means.

What is null, or empty in a CSV file, was not reached, or was not measured. Runs that have failed are not in
them.
"""

from __future__ import annotations

from functools import partial

from fedsim.report.columns import PATH, Column, Table, count, flag, joules, number, seconds, size, word
from fedsim.report.run_columns import MEASURED, ROUND, STALE

mean_size = partial(Column, "float64", "B")

_SETTING = {
    "variant": word("Name of the variant."),
    "algorithm": word("Name of the algorithm."),
    PATH: Column("", "as in a scenario", "Value of <path>, which the grid gives or tuning has chosen."),
}

_JAIN = "Jain's index of the clients' accuracies: 1 if all are equal, 1/n if one of n clients has all"

EVALUATIONS = Table(
    "study",
    "study.parquet",
    "One row for each evaluation of each run. Sums are since the start of the run.",
    {
        **_SETTING,
        "seed": count("Seed of the run."),
        "round": ROUND,
        "simulated_s": seconds("Virtual time of the evaluation."),
        "bytes_up": size("Length of all frames sent to the server so far."),
        "bytes_down": size("Length of all frames sent to clients so far."),
        "bytes_plain_up": size("Length that the frames sent to the server so far would have without codecs."),
        "bytes_plain_down": size("Length that the frames sent to clients so far would have without codecs."),
        "parameters_up": count("Model parameters, or other scalars, sent to the server so far."),
        "parameters_down": count("Model parameters, or other scalars, sent to clients so far."),
        "work_s": seconds("Time of downloading, computing and uploading, of the rounds so far."),
        "wasted_s": seconds("Time of downloading, computing and uploading in vain, of the rounds so far."),
        "wasted_bytes": size("Length of the frames sent in vain, of the rounds so far."),
        "dropped": count("Dispatches without a reply in time so far."),
        "joules": joules("Energy of clients and server, of the rounds so far, where it is computed."),
        "carbon_g": Column("float64", "g", "CO2 of that energy, where the carbon intensity is given."),
        "accuracy_personal_mean": MEASURED["accuracy_mean"],
        "accuracy_std": MEASURED["accuracy_std"],
        "accuracy_worst_decile": MEASURED["accuracy_worst_decile"],
        "accuracy_global": MEASURED["accuracy_global"],
        "loss_personal_mean": MEASURED["loss_mean"],
        "loss_global": MEASURED["loss_global"],
        "staleness_mean": number(f"{STALE}, mean over the replies merged in the round."),
        "staleness_so_far": number(f"{STALE}, mean over the replies merged so far."),
        "accuracy_jain": number(f"{_JAIN}."),
    },
)

_TO_TARGET = "until the first evaluation that shows the target"
_AT_END = "at the last evaluation"
_WITHOUT_CODECS = "Length without codecs"

ANSWERS = Table(
    "answers",
    "answers.csv",
    "One row for each variant, point of the grid and target. Quantities are means over the seeds that have "
    "them; intervals are of these means.",
    {
        **_SETTING,
        "target": number("Accuracy to be reached."),
        "of": word("Which accuracy: personal_mean, personal_worst_decile or global."),
        "interval": word("How intervals are made: t (Student's) or bootstrap."),
        "seeds": count("Runs that have ended."),
        "reached": count("Runs that have reached the target."),
        "time_to_target_s": seconds(f"Virtual time {_TO_TARGET}."),
        "bytes_to_target": mean_size(f"Length of all frames sent {_TO_TARGET}."),
        "bytes_up_to_target": mean_size(f"Length of the frames sent to the server {_TO_TARGET}."),
        "bytes_down_to_target": mean_size(f"Length of the frames sent to clients {_TO_TARGET}."),
        "bytes_plain_to_target": mean_size(f"{_WITHOUT_CODECS}, of all frames sent {_TO_TARGET}."),
        "parameters_up_to_target": number(f"Parameters sent to the server {_TO_TARGET}."),
        "parameters_down_to_target": number(f"Parameters sent to clients {_TO_TARGET}."),
        "rounds_to_target": number(f"Rounds {_TO_TARGET}."),
        "joules_to_target": joules(f"Energy of clients and server {_TO_TARGET}."),
        "carbon_to_target_g": Column("float64", "g", f"CO2 of that energy {_TO_TARGET}."),
        "best_accuracy": number("Highest accuracy of any evaluation."),
        "final_accuracy": number(f"Accuracy {_AT_END}."),
        "final_accuracy_std": number(f"Standard deviation of the accuracy over clients, {_AT_END}."),
        "final_accuracy_worst_decile": number(f"Mean over the least accurate tenth of clients, {_AT_END}."),
        "final_accuracy_jain": number(f"{_JAIN}; {_AT_END}."),
        "simulated_s": seconds("Virtual time of the last evaluation."),
        "bytes_up": mean_size(f"Length of all frames sent to the server, {_AT_END}."),
        "bytes_down": mean_size(f"Length of all frames sent to clients, {_AT_END}."),
        "bytes_plain_up": mean_size(f"{_WITHOUT_CODECS}, of all frames sent to the server, {_AT_END}."),
        "bytes_plain_down": mean_size(f"{_WITHOUT_CODECS}, of all frames sent to clients, {_AT_END}."),
        "wasted_s": seconds(f"Time of downloading, computing and uploading in vain, {_AT_END}."),
        "wasted_bytes": mean_size(f"Length of the frames sent in vain, {_AT_END}."),
        "joules": joules(f"Energy of clients and server, {_AT_END}."),
        "carbon_g": Column("float64", "g", f"CO2 of that energy, {_AT_END}."),
        "staleness_mean": number(f"{STALE}, mean over the replies merged in the run."),
        "wasted_s_share": number(f"Share of the time of work that was in vain, {_AT_END}."),
        "wasted_bytes_share": number(f"Share of the length of all frames that was in vain, {_AT_END}."),
        "equal_time_s": seconds("The earliest end of a run: within it, accuracy_at_equal_time."),
        "equal_bytes": mean_size("The least that a run sent: within it, accuracy_at_equal_bytes."),
        "accuracy_at_<budget>_seeds": count("Runs of which accuracy_at_<budget> is the mean."),
        "accuracy_at_<budget>_ended_before": count("Runs that ended before they had spent the budget."),
        "<quantity>_low": Column("float64", "<quantity>", "Lower end of the 95 % interval of <quantity>."),
        "<quantity>_high": Column("float64", "<quantity>", "Upper end of the 95 % interval of <quantity>."),
        "<quantity>_minus_baseline": Column(
            "float64", "<quantity>", "<quantity> minus the baseline's with the same seed, mean over pairs."
        ),
        "<quantity>_pairs": count("Pairs of seeds of which <quantity>_minus_baseline is the mean."),
        "accuracy_at_<budget>": number("Accuracy of the last evaluation within the budget <budget>."),
    },
)

FRONT = Table(
    "front",
    "front.csv",
    "One row for each point of the Pareto fronts of accuracy against time and bytes.",
    {
        "budget": word("What is bounded: time_s or bytes."),
        "cost": Column("float64", "s or B", "The budget, from which on the setting has the accuracy."),
        "accuracy": number("Accuracy of the last evaluation within the budget, mean over seeds."),
        **_SETTING,
    },
)

TUNING = Table(
    "tuning",
    "tuning.csv",
    "One row for each trial, if anything is tuned.",
    {
        **_SETTING,
        "seed": count("Seed of the trial."),
        "accuracy": number("Accuracy on the clients' validation samples at the end, mean over clients."),
        "chosen": flag("Whether these values were chosen."),
    },
)

STUDY_TABLES = (EVALUATIONS, ANSWERS, FRONT, TUNING)
"""Those in the folder of a study."""
