"""Measuring: on whom, what the figures mean, and that it costs nothing."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedsim.algorithms.base import Exchange, Predictor
from fedsim.data import FederatedData
from fedsim.engine.confusion import Confusion
from fedsim.engine.jobs import ClientSamples, GlobalTest, Score
from fedsim.params import Model
from fedsim.runtime.evaluation import Accuracy
from fedsim.runtime.parts import EvaluationConfig
from fedsim.task import Task

NAN = float("nan")


def _accuracy(*personal: float, weights: Any = None, losses: Any = None) -> Accuracy:
    values = np.array(personal)
    counts = np.ones(len(values), np.int64) if weights is None else np.array(weights)
    found = np.zeros(len(values)) if losses is None else np.array(losses)
    return Accuracy(np.arange(len(values)), values, counts, None, found, None)


def _model(value: float, label: str = "linear") -> Model:
    values = {"head.weight": np.full((2, 2), value, np.float32), "head.bias": np.zeros(2, np.float32)}
    return Model(label, values)


def _models(world: Any, **by_name: Model) -> Any:
    return world.Scripted(models_of=lambda observer, server, client: _predictors(by_name))


def _predictors(models: Any) -> dict[str, Predictor]:
    return {name: Predictor(model) for name, model in models.items()}


# The figures


def test_figures_by_hand() -> None:
    accuracy = _accuracy(0.5, 1.0, 0.0, weights=[2, 1, 1])
    assert accuracy.mean == 0.5
    assert accuracy.std == 0.5  # squares 0, 1/4, 1/4 over 3 - 1
    assert accuracy.weighted_mean == 0.5
    assert _accuracy(0.5, 1.0, weights=[3, 1]).weighted_mean == 0.625
    assert accuracy.worst_decile == 0.0


def test_clients_without_samples_are_left_out() -> None:
    accuracy = _accuracy(0.5, NAN, 1.0, weights=[1, 0, 3])
    assert (accuracy.mean, accuracy.weighted_mean) == (0.75, 0.875)
    assert accuracy.std == pytest.approx(0.125**0.5)


def test_nothing_measured_is_none() -> None:
    for accuracy in (_accuracy(), _accuracy(NAN, NAN)):
        figures = accuracy.mean, accuracy.std, accuracy.worst_decile, accuracy.weighted_mean
        assert figures == (None, None, None, None)


def test_losses_by_hand() -> None:
    found = _accuracy(0.5, NAN, 1.0, 0.0, weights=[1, 0, 3, 1], losses=[1.0, NAN, 2.0, 3.0])
    assert (found.mean_loss, found.std_loss) == (2.0, 1.0)
    assert (_accuracy().mean_loss, _accuracy().std_loss) == (None, None)
    assert _accuracy(0.5, losses=[7.0]).std_loss == 0.0


def test_a_regression_has_losses_and_no_accuracy() -> None:
    found = _accuracy(NAN, NAN, losses=[1.0, 4.0])
    assert (found.mean, found.worst_decile, found.mean_loss) == (None, None, 2.5)


def test_a_loss_that_is_not_finite_is_not_left_out() -> None:
    found = _accuracy(0.5, 0.5, losses=[1.0, float("inf")])
    assert found.mean_loss == float("inf")
    found = _accuracy(0.5, 0.5, losses=[1.0, NAN])
    assert found.mean_loss is not None
    assert np.isnan(found.mean_loss)


def test_one_client_does_not_deviate() -> None:
    assert _accuracy(0.25).std == 0.0


def test_the_worst_decile_is_the_mean_of_the_worst_tenth() -> None:
    assert _accuracy(*(k / 20 for k in reversed(range(20)))).worst_decile == pytest.approx((0 + 1 / 20) / 2)


# What is measured


def test_personal_models_meet_their_clients_samples_and_global_ones_the_global_test_set(world: Any) -> None:
    oracle = world.Oracle(world.by_client((1, 4), (3, 4), (0, 0), everything=(7, 10)))
    algorithm = _models(world, personal=_model(1.0), **{"global": _model(2.0)})
    result, trace = world.play(algorithm, executor=oracle)
    jobs = [(float(job.model.params["head.weight"][0, 0]), len(job.parts)) for job in oracle.jobs]
    assert jobs == [(1.0, 3), (2.0, 1)]
    accuracy = result.final
    assert accuracy.clients.tolist() == [0, 1, 2]
    assert accuracy.personal[:2].tolist() == [0.25, 0.75]
    assert np.isnan(accuracy.personal[2])
    assert accuracy.weights.tolist() == [4, 4, 0]
    assert (accuracy.mean, accuracy.global_) == (0.5, 0.7)
    (measurement,) = [record for record in trace if record[1] == "evaluation"]
    assert measurement == (5_000_000_000, "evaluation", 1, 3, 0.5, 0.7)


def test_a_global_model_stands_for_clients_without_a_personal_one(world: Any) -> None:
    oracle = world.Oracle(world.by_client((1, 4), (3, 4), everything=(1, 2)))
    result, _ = world.play(_models(world, **{"global": _model(1.0)}), sizes=(1, 1), executor=oracle)
    assert (result.final.mean, result.final.global_) == (0.5, 0.5)


def test_without_a_global_model_there_is_no_global_accuracy(world: Any) -> None:
    result, _ = world.play(_models(world, personal=_model(1.0)), executor=world.Oracle())
    assert (result.final.mean, result.final.global_) == (0.5, None)


def test_without_global_test_samples_there_is_no_global_accuracy(world: Any) -> None:
    oracle = world.Oracle(world.by_client((1, 2), everything=(0, 0)))
    result, _ = world.play(_models(world, **{"global": _model(1.0)}), sizes=(1,), executor=oracle)
    assert result.final.global_ is None


def test_several_global_models_count_alike(world: Any) -> None:
    models = [_model(1.0), _model(2.0), _model(2.0)]
    models[2] = models[1]
    scores = {id(models[0]): Score(1, 4, 0.0), id(models[1]): Score(3, 4, 0.0)}
    oracle = world.Oracle()
    oracle._score = lambda samples: scores[id(oracle.jobs[-1].model)]
    algorithm = world.Scripted(
        models_of=lambda observer, server, client: {"global": Predictor(models[observer.client])}
    )
    result, _ = world.play(algorithm, executor=oracle)
    # Two clients share one of the two models; it is one model all the same.
    assert result.final.global_ == 0.5
    assert result.final.mean == pytest.approx((1 + 3 + 3) / 12)


def test_a_shared_model_goes_through_the_clients_in_few_jobs(world: Any) -> None:
    oracle = world.Oracle()
    world.play(
        _models(world, **{"global": _model(1.0)}), sizes=[1] * 40, executor=oracle, clients_per_round=1
    )
    assert [len(job.parts) for job in oracle.jobs] == [32, 8, 1]
    assert oracle.jobs[0].parts[5] == ClientSamples(5, "test")
    assert oracle.jobs[2].parts == (GlobalTest(),)
    assert {job.batch_size for job in oracle.jobs} == {256}


def test_split_and_batch_size_are_what_was_asked_for(world: Any) -> None:
    oracle = world.Oracle()
    settings = EvaluationConfig(split="val", batch_size=7)
    world.play(_models(world, personal=_model(1.0)), sizes=(1,), executor=oracle, evaluation=settings)
    assert [(job.parts, job.batch_size) for job in oracle.jobs] == [((ClientSamples(0, "val"),), 7)]


def test_clients_never_contacted_are_measured_too(world: Any) -> None:
    algorithm = world.Scripted()
    result, _ = world.play(algorithm, sizes=[1] * 9, executor=world.Oracle(), clients_per_round=1)
    assert result.final.clients.tolist() == list(range(9))
    assert sum(state == world.Diary((), -1) for state in algorithm.observed.values()) == 8


def test_a_sample_of_clients_is_drawn_once_by_seed(world: Any) -> None:
    def clients(seed: int) -> list[list[int]]:
        settings = EvaluationConfig(clients=4)
        result, _ = world.play(
            world.Scripted(),
            sizes=[1] * 50,
            clients_per_round=1,
            rounds=3,
            executor=world.Oracle(),
            evaluation=settings,
            seed=seed,
        )
        return [row.accuracy.clients.tolist() for row in result.rounds]

    first = clients(0)
    assert len(set(first[0])) == 4
    assert first[0] == sorted(first[0])
    assert first[0] == first[1] == first[2] == clients(0)[0]
    assert clients(1) != first


def test_a_sample_no_smaller_than_the_population_is_the_population(world: Any) -> None:
    for limit in (3, 100):
        settings = EvaluationConfig(clients=limit)
        result, _ = world.play(world.Scripted(), executor=world.Oracle(), evaluation=settings)
        assert result.final.clients.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("every", "rounds", "measured"), [(1, 3, [1, 2, 3]), (2, 5, [2, 4, 5]), (9, 4, [4]), (0, 3, [])]
)
def test_when_to_measure(every: int, rounds: int, measured: list[int], world: Any) -> None:
    result, _ = world.play(
        world.Scripted(), rounds=rounds, executor=world.Oracle(), evaluation=EvaluationConfig(every=every)
    )
    assert [row.round for row in result.rounds if row.accuracy is not None] == measured


def test_measuring_by_simulated_time(world: Any) -> None:
    def measured(**settings: Any) -> tuple[list[float], list[int]]:
        evaluation = EvaluationConfig(**settings)
        result, _ = world.play(world.Scripted(), rounds=5, executor=world.Oracle(), evaluation=evaluation)
        rows = [row.round for row in result.rounds if row.accuracy is not None]
        return [row.ended_at_s for row in result.rounds], rows

    ends, every = measured(every=1)
    assert every == [1, 2, 3, 4, 5]
    length_s = ends[0]
    assert ends == [pytest.approx(number * length_s) for number in (1, 2, 3, 4, 5)]
    # The first round to end after 1.5, 3 and 4.5 rounds' time; what ends exactly then is after it.
    assert measured(every_s=1.5 * length_s)[1] == [2, 3, 5]
    assert measured(every_s=2 * ends[-1])[1] == [5]
    assert measured(every_s=2.5 * length_s, every=4)[1] == [3, 4, 5]
    assert measured(every_s=2 * ends[-1], every=0)[1] == [5]


def test_rounds_as_long_as_the_time_between_measurements_are_all_measured(world: Any) -> None:
    # As binary fractions 3 * 0.1 is more than 0.3.
    result, _ = world.play(
        world.Scripted(work_s=lambda client, exchange: 0.0),
        rounds=20,
        network=world.Wires(delay_s=0.05),
        executor=world.Oracle(),
        evaluation=EvaluationConfig(every_s=0.1),
    )
    assert result.rounds[2].ended_at_s == 0.3
    assert all(row.accuracy is not None for row in result.rounds)


def test_the_closing_is_measured(world: Any) -> None:
    exchanges = [Exchange("talk", reply=world.Word), Exchange("part", when="closing", reply=world.Word)]
    for every, measured in ((5, [2, 3]), (0, [])):
        result, _ = world.play(
            world.Scripted(exchanges),
            rounds=2,
            executor=world.Oracle(),
            evaluation=EvaluationConfig(every=every),
        )
        assert [row.round for row in result.rounds if row.accuracy is not None] == measured


@pytest.mark.parametrize("opening", [False, True])
@pytest.mark.parametrize(("every", "measured"), [(2, [0, 2, 3]), (0, [0])])
def test_the_start_is_measured_if_asked_for_and_has_a_row(
    every: int, measured: list[int], opening: bool, world: Any
) -> None:
    exchanges = [Exchange("meet", when="opening", reply=world.Word)] if opening else []
    result, trace = world.play(
        world.Scripted([*exchanges, Exchange("talk", reply=world.Word)]),
        rounds=3,
        executor=world.Oracle(),
        evaluation=EvaluationConfig(every=every, at_start=True),
    )
    assert [row.round for row in result.rounds] == [0, 1, 2, 3]
    assert [row.round for row in result.rounds if row.accuracy is not None] == measured
    first = result.rounds[0]
    assert (first.ended_at_s > 0, first.traffic.frames_up > 0) == (opening, opening)
    assert [record[2] for record in trace if record[1] == "evaluation"] == measured


def test_where_nothing_learns_nothing_is_measured(world: Any) -> None:
    result, trace = world.play(world.Scripted())
    assert result.final is None
    assert result.best is None
    assert "evaluation" not in {record[1] for record in trace}


def test_an_observers_work_takes_no_time_and_leaves_no_trace(world: Any) -> None:
    class Tuning(world.Scripted):  # type: ignore[misc]
        async def models_of(self, observer: Any, server_state: Any, client_state: Any) -> Any:
            await observer.call(world.nothing, flops=1000.0)
            return {"personal": Predictor(observer.initial_model())}

    plain, plain_trace = world.play(world.Scripted(), executor=world.Oracle())
    tuned, tuned_trace = world.play(Tuning(), executor=world.Oracle())
    assert tuned.simulated_s == plain.simulated_s == 5.0
    assert [record[1] for record in tuned_trace] == [record[1] for record in plain_trace]
    assert tuned.totals == plain.totals


# By class


def test_classes_are_counted_over_all_clients_and_on_the_global_test_set(world: Any) -> None:
    def of(*pairs: tuple[int, int]) -> Score:
        labels, predicted = np.array(pairs).T
        hits = int((labels == predicted).sum())
        return Score(hits, len(pairs), 1.0, Confusion.of(labels, predicted, 2))

    own = [of((0, 0), (1, 0)), of((1, 1), (1, 0)), Score(0, 0, 0.0)]
    oracle = world.Oracle(
        lambda samples: own[samples.client] if isinstance(samples, ClientSamples) else of((0, 1), (1, 1))
    )
    settings = EvaluationConfig(per_class=True)
    algorithm = _models(world, personal=_model(1.0), **{"global": _model(2.0)})
    result, _ = world.play(algorithm, executor=oracle, evaluation=settings)
    assert [job.per_class for job in oracle.jobs] == [True, True]
    counted = result.final.confusions
    assert list(counted) == ["clients", "global"]
    assert counted["clients"].matrix.tolist() == [[1, 0], [2, 1]]
    assert counted["global"].matrix.tolist() == [[0, 1], [0, 1]]


def test_without_the_setting_no_class_is_counted(world: Any) -> None:
    oracle = world.Oracle()
    result, _ = world.play(world.Scripted(), executor=oracle)
    assert not any(job.per_class for job in oracle.jobs)
    assert result.final.confusions == {}


@pytest.mark.parametrize(
    ("task", "changes", "fault"),
    [
        (Task((2,), 2), {}, "nothing is learned"),
        (Task((2,), 2), {"evaluation": EvaluationConfig(per_class=True, every=0)}, "evaluation.every = 0"),
        (Task((2,), 1, "regression"), {}, "the task is a regression, without classes"),
        (Task((2,), 9, vocabulary=9), {}, "labels are the next tokens of texts"),
    ],
)
def test_where_there_are_no_classes_to_count(
    world: Any, task: Task, changes: dict[str, Any], fault: str
) -> None:
    executor = {} if fault == "nothing is learned" else {"executor": world.Oracle()}
    parts = world.make_parts(world.Scripted(), **{"evaluation": EvaluationConfig(per_class=True)} | executor)
    x, y = np.zeros((4, 2), task.dtype), np.zeros(4, task.label_dtype)
    nothing = parts.data.holdings["val"]
    holdings = dict.fromkeys(("train", "val", "test"), nothing)
    data = FederatedData(task, x, y, np.arange(0), np.arange(0), 3, holdings)
    told = list(map(str, replace(parts, data=data, **changes).misfits()))
    (said,) = [one for one in told if "per_class" in one]
    assert said.startswith("evaluation.per_class: ")
    assert fault in said


# The hash


def test_the_hash_is_that_of_the_models_and_not_of_the_objects(world: Any) -> None:
    def model_hash(**models: Model) -> str:
        result, _ = world.play(_models(world, **models))
        assert len(result.model_hash) == 32
        return str(result.model_hash)

    one = model_hash(personal=_model(1.0))
    assert model_hash(personal=_model(1.0)) == one
    weight = np.full((2, 2), 1.0, np.float32)
    weight[1, 1] += 1e-6
    nudged = Model("linear", {**_model(1.0).params, "head.weight": weight})
    changed = {
        model_hash(personal=nudged),
        model_hash(personal=_model(1.0, "other")),
        model_hash(personal=_model(1.0), **{"global": _model(1.0)}),
        model_hash(),
    }
    assert len(changed - {one}) == 4


def test_the_hash_tells_clients_apart(world: Any) -> None:
    def model_hash(*values: float) -> str:
        algorithm = world.Scripted(
            models_of=lambda observer, server, client: _predictors(
                {"personal": _model(values[observer.client])}
            )
        )
        return str(world.play(algorithm)[0].model_hash)

    assert model_hash(1.0, 2.0, 3.0) == model_hash(1.0, 2.0, 3.0)
    assert model_hash(1.0, 2.0, 3.0) != model_hash(1.0, 3.0, 2.0)
