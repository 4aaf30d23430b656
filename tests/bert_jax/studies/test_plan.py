"""The jobs of a study: which there are, which arms share, where they lie, and what a wrong study says."""

import dataclasses
from pathlib import PurePosixPath

import pytest

from bert_jax.objectives import CausalThenMaskedLM, LeftToRight, MaskedLM, ReplacedTokenDetection
from bert_jax.pretraining.initial_shape import InitialModel
from bert_jax.studies.arm_experiments import with_budget, with_steps
from bert_jax.studies.changes import with_changes
from bert_jax.studies.plan import (
    MeasuringJob,
    Plan,
    PretrainingJob,
    make_plan,
    only_arms,
)
from bert_jax.study import Arm, Changes, HeldoutLM, Measure, MinimalPairs, Probe, Scale
from bert_jax.training.accounting import run_flops
from data_pipeline.config import Phase
from data_pipeline.errors import UserError
from experiments.base import BASE
from tests.bert_jax.studies.small_study import STUDY, TINY, TOPIC, plan_of


def paths(plan: Plan) -> list[str]:
    return [str(job.path) for job in plan.jobs]


def test_a_job_comes_after_those_that_it_needs_and_seeds_come_one_after_the_other() -> None:
    plan = plan_of(scale="tiny")
    place = {job.path: number for number, job in enumerate(plan.jobs)}
    measures = [job for job in plan.jobs if isinstance(job, MeasuringJob)]
    assert measures
    assert all(place[job.model.path] < place[job.path] for job in measures)
    seeds = [int(job.path.parts[1].removeprefix("seed-")) for job in plan.jobs]
    assert seeds == sorted(seeds)


def test_arms_of_one_experiment_share_its_pretraining() -> None:
    plan = plan_of(scale="tiny")
    assert plan.runs["ltr", 1] is plan.runs["ltr_bilstm", 1]
    runs = [job for job in plan.jobs if isinstance(job, PretrainingJob)]
    assert len(runs) == 3 * 2
    assert plan.measured["ltr", 1] != plan.measured["ltr_bilstm", 1]


def test_arms_that_differ_in_nothing_share_all_jobs() -> None:
    plan = plan_of(arms={"one": Arm(TINY), "same": Arm(TINY)}, base="one")
    assert paths(plan) == ["one/seed-0/pretraining", "one/seed-0/classify"]


def test_another_seed_or_arm_leaves_the_paths_of_the_others() -> None:
    more = {**STUDY.arms, "new": Arm(dataclasses.replace(TINY, seed=9))}
    assert set(paths(plan_of())) < set(paths(plan_of(scale="tiny")))
    assert set(paths(plan_of(scale="tiny"))) <= set(paths(plan_of(scale="tiny", arms=more)))


def test_a_scale_may_begin_with_a_later_seed() -> None:
    plan = make_plan(STUDY, "tiny", Scale(seeds=2, first_seed=3), {})
    assert {seed for _, seed in plan.runs} == {3, 4}
    assert plan.runs["base", 3].experiment.seed == 3
    assert str(plan.runs["base", 3].path) == "base/seed-3/pretraining"
    with pytest.raises(UserError, match="first_seed is -1; it must be from 0"):
        Scale(seeds=2, first_seed=-1)


def test_some_arms_come_with_the_base_and_what_they_are_compared_with_and_paths_stay() -> None:
    chained = Arm(dataclasses.replace(TINY, log_every=1), compared_with="mlm")
    arms = {**STUDY.arms, "chained": chained}
    whole = plan_of(scale="tiny", arms=arms, published=STUDY.published)
    plan = only_arms(whole, ["chained"])
    assert list(plan.study.arms) == list(plan.experiments) == ["base", "mlm", "chained"]
    assert {job.path.parts[0] for job in plan.jobs} == {"base", "mlm", "chained"}
    assert set(plan.study.published) == {"base", "mlm"}
    # The arm's pretraining is that of another, at whose path it stays.
    plan = only_arms(whole, ["ltr_bilstm"])
    assert [path for path in paths(plan) if "seed-0" in path] == [
        "base/seed-0/pretraining",
        "base/seed-0/classify",
        "ltr/seed-0/pretraining",
        "ltr_bilstm/seed-0/classify",
    ]
    assert only_arms(whole, []) is whole
    compared = {**STUDY.arms, "base": Arm(TINY, compared_with="ltr")}
    plan = only_arms(plan_of(scale="tiny", arms=compared, published=STUDY.published), ["mlm"])
    assert list(plan.study.arms) == ["base", "mlm", "ltr"]
    with pytest.raises(UserError, match="--arms: study tiny has no arm 'lrt'; valid: base, mlm, ltr, "):
        only_arms(whole, ["mlm", "lrt"])


def test_arms_take_the_shape_of_the_model_that_they_start_from() -> None:
    larger = dataclasses.replace(TINY.model, num_layers=3, hidden_size=32, vocab_size=120)
    model = InitialModel("larger", "fingerprint", larger)
    arms = {**STUDY.arms, "scratch": Arm(TINY, from_scratch=True)}
    study = dataclasses.replace(STUDY, arms=arms)
    plan = make_plan(study, "one", Scale(seeds=1), {"model.vocab_size": 110}, initial=model)
    shapes = {(run.model.num_layers, run.model.vocab_size) for run in plan.experiments.values()}
    assert shapes == {(3, 120)}
    assert "model.num_layers 1 -> 3" in plan.changed
    starts = {arm: run.init_fingerprint for (arm, _), run in plan.runs.items()}
    assert starts == {**dict.fromkeys(STUDY.arms, "fingerprint"), "scratch": ""}
    assert plan.runs["base", 0].experiment == plan.runs["scratch", 0].experiment
    assert plan.runs["base", 0] is not plan.runs["scratch", 0]
    with pytest.raises(UserError, match=r"arm base: the model .* model\.hidden_size is 64, not 32"):
        make_plan(study, "one", Scale(seeds=1), {"model.hidden_size": 64}, initial=model)


def test_arms_of_another_shape_than_the_initial_model_are_left_out_by_name() -> None:
    deep = Arm(TINY, {"model.num_layers": 2})
    study = dataclasses.replace(STUDY, arms={**STUDY.arms, "deep": deep})
    plan = make_plan(study, "one", Scale(seeds=1), {}, initial=InitialModel("model", "print", TINY.model))
    with pytest.raises(UserError, match=r"deep \(deep: .*num_layers is 2, not 1.*--arms base mlm ltr ltr_b"):
        only_arms(plan, [])
    with pytest.raises(UserError, match="cannot start from the model of --init-from: deep"):
        only_arms(plan, ["mlm", "deep"])
    assert list(only_arms(plan, ["mlm"]).study.arms) == ["base", "mlm"]


def test_an_objective_brings_what_it_needs_and_the_arm_may_change_that() -> None:
    causal_first = Arm(TINY, {"objective": CausalThenMaskedLM(), "data.masking.rate": 0.3})
    arms = {**STUDY.arms, "causal": Arm(TINY, {"objective": LeftToRight()}), "two_stages": causal_first}
    runs = plan_of(arms=arms).experiments
    assert (runs["causal"].model.attention, runs["causal"].data.masking.rate) == ("causal", 0)
    assert [phase.max_predictions_per_seq > 0 for phase in runs["two_stages"].data.phases] == [False, True]
    assert runs["two_stages"].data.masking.rate == 0.3


def test_changes_of_the_scale_come_before_those_of_the_command() -> None:
    scale = Scale(seeds=1, changes={"model.hidden_size": 32, "num_train_steps": 4})
    run = plan_of({"num_train_steps": 6}, scales={"one": scale}).runs["base", 0].experiment
    assert (run.model.hidden_size, run.num_train_steps) == (32, 6)


def test_changes_of_an_arm_come_after_those_of_the_scale() -> None:
    scale = Scale(seeds=1, changes={"model.hidden_size": 32, "global_batch_size": 4})
    changed = Arm(TINY, {"model.hidden_size": 48})
    arms = {**STUDY.arms, "changed": changed}
    plan = plan_of({"global_batch_size": 2}, arms=arms, scales={"one": scale})
    assert [plan.experiments[arm].model.hidden_size for arm in ("base", "changed")] == [32, 48]
    assert plan.experiments["changed"].global_batch_size == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model.num_layers": 3}, "arm deep differs from the base in model.num_layers, so a flag cannot"),
        (
            {"data.phases.0.max_predictions_per_seq": 3},
            "arm deep differs from the base in data.phases.0.max_p",
        ),
        ({"data.masking.rate": 0.3}, "arm ltr differs from the base in data.masking.rate"),
        ({"data.phases.1.max_seq_length": 16}, "unknown setting 'data.phases.1'; items are numbered 0 to 0"),
        ({"data.weights.0": 0.5}, "unknown setting 'data.weights.0'; there are no items"),
    ],
)
def test_no_flag_undoes_what_an_arm_is_about(changes: Changes, message: str) -> None:
    phases = [Phase(max_seq_length=32, max_predictions_per_seq=7)]  # a list, as people write them
    arms = {**STUDY.arms, "deep": Arm(TINY, {"model.num_layers": 2, "data.phases": phases})}
    with pytest.raises(UserError, match=message):
        plan_of(changes, arms=arms)
    runs = plan_of({"data.phases.0.max_seq_length": 16}, arms=arms).experiments
    found = [runs[arm].data.phases[0] for arm in ("base", "deep")]
    assert [(phase.max_seq_length, phase.max_predictions_per_seq) for phase in found] == [(16, 5), (16, 7)]


def test_layers_that_an_arm_freezes_are_those_of_its_model() -> None:
    arms = {**STUDY.arms, "frozen": Arm(TINY, finetuning={"frozen_layers": 1})}
    with pytest.raises(UserError, match=r"frozen freezes 1 layers, so a flag cannot set model\.num_layers"):
        plan_of({"model.num_layers": 2}, arms=arms)


@pytest.mark.parametrize(
    ("arm", "message"),
    [
        (Arm(TINY, {"model.vocab_size": 200}), "arm other: model.vocab_size is that of the corpus"),
        (Arm(TINY, {"objective": "ltr"}), "arm other: objective is 'ltr'; it must be one of bert_jax.obj"),
        (
            Arm(TINY, {"model": 5}),
            r"arm other: model is 5; its settings are changed one by one, such as model",
        ),
        (Arm(TINY, {"keep_every": "4"}), "arm other: keep_every is '4'; it must be a whole number"),
        (Arm(TINY, finetuning={"epochs": {1.0}}), r"arm other: epochs is \{1\.0\}; flags are numbers, text"),
    ],
)
def test_an_arm_that_cannot_be_is_named(arm: Arm, message: str) -> None:
    with pytest.raises(UserError, match=message):
        plan_of(arms={**STUDY.arms, "other": arm})


def test_an_objective_of_the_scale_brings_what_it_needs() -> None:
    arms = {"base": Arm(TINY), "mlm": Arm(TINY, {"objective": MaskedLM()})}
    scale = Scale(seeds=1, changes={"objective": LeftToRight()})
    experiments = plan_of(arms=arms, scales={"one": scale}).experiments
    assert experiments["base"].model.attention == "causal"
    assert experiments["mlm"].model.attention == "bidirectional"


@pytest.mark.parametrize("every", [0, -500])
def test_steps_between_measures_are_at_least_1(every: int) -> None:
    with pytest.raises(UserError, match=f"topic: every is {every}; it must be at least 1"):
        dataclasses.replace(TOPIC, every=every)


@pytest.mark.parametrize("path", ["data.corpus", "seed"])
def test_corpus_and_seed_are_the_same_for_all_arms(path: str) -> None:
    for arm, scale in (
        (Arm(TINY, {path: 3}), Scale(seeds=1)),
        (Arm(TINY), Scale(seeds=1, changes={path: 3})),
    ):
        with pytest.raises(UserError, match=f"{path} is the same for all arms"):
            plan_of(arms={**STUDY.arms, "other": arm}, scales={"one": scale})


def test_another_number_of_steps_keeps_the_shape_of_the_schedule() -> None:
    arms = {**STUDY.arms, "late": Arm(TINY, {"optimizer.decay_start": 6})}
    runs = plan_of({"num_train_steps": 16}, arms=arms).experiments
    assert (runs["late"].optimizer.warmup_steps, runs["late"].optimizer.decay_start) == (4, 12)
    runs = plan_of({"num_train_steps": 16, "optimizer.warmup_steps": 1}, arms=arms).experiments
    assert (runs["base"].optimizer.warmup_steps, runs["late"].optimizer.decay_start) == (1, 12)


def test_a_decay_from_step_0_stays_one() -> None:
    optimizer = dataclasses.replace(BASE.optimizer, decay_start=0)
    experiment = dataclasses.replace(BASE, optimizer=optimizer)
    for steps in (BASE.num_train_steps, 500):
        assert with_steps(experiment, steps).optimizer.decay_start == 0


def test_the_flops_of_a_run_are_those_of_its_steps() -> None:
    for steps in range(1000, 3000, 7):
        experiment = with_steps(BASE, steps)
        for budget in (run_flops(experiment), float(run_flops(experiment))):
            assert with_budget(experiment, budget).num_train_steps == steps
        assert with_budget(experiment, 0.999999 * run_flops(experiment)).num_train_steps == steps - 1


def test_the_schedule_that_flags_set_is_kept_whatever_the_budget() -> None:
    changes = {"optimizer.warmup_steps": 3, "optimizer.decay_start": 5}
    one = STUDY.scales["one"]
    for plan in (
        make_plan(STUDY, "one", one, changes, 2 * run_flops(TINY)),
        make_plan(STUDY, "one", one, changes, None, {"base": 2 * TINY.num_train_steps}),
    ):
        base = plan.experiments["base"]
        assert base.num_train_steps == 2 * TINY.num_train_steps
        assert (base.optimizer.warmup_steps, base.optimizer.decay_start) == (3, 5)


def test_arms_of_equal_flops_spend_what_the_base_does_however_long_that_is() -> None:
    wide = Arm(TINY, {"model.intermediate_size": 256})
    same = Arm(TINY, {"model.activation": "relu"})
    study = dataclasses.replace(STUDY, arms={"base": Arm(TINY), "wide": wide, "same": same}, published={})
    scale = Scale(seeds=1, equal_flops=True)

    def planned(changes: Changes, budget: float | None = None) -> list[int]:
        runs = make_plan(study, "one", scale, changes, budget).experiments
        return [run.num_train_steps for run in runs.values()]

    for changes in ({}, {"num_train_steps": 777}, {"model.vocab_size": 5000}):
        steps = changes.get("num_train_steps", TINY.num_train_steps)
        one, of_wide = (
            run_flops(with_changes(TINY, {**arm.changes, **changes}, "")) for arm in (Arm(TINY), wide)
        )
        assert planned(changes) == [steps, int(steps * one / of_wide), steps]
    assert planned({}, 3 * run_flops(TINY))[0] == 3 * TINY.num_train_steps


def test_what_flags_corpus_and_budget_change_of_a_scale_is_known() -> None:
    assert plan_of({"data.corpus": "corpora/mine"}).changed == ()
    changed = plan_of({"model.vocab_size": 200, "num_train_steps": 16}).changed
    expected = {"model.vocab_size 100 -> 200", "num_train_steps 8 -> 16", "optimizer.warmup_steps 2 -> 4"}
    assert set(changed) == expected
    budgeted = make_plan(STUDY, "one", STUDY.scales["one"], {}, 3 * run_flops(TINY))
    assert "num_train_steps 8 -> 24" in budgeted.changed


def test_kept_checkpoints_are_measured_at_every_so_many_steps() -> None:
    measures = (dataclasses.replace(TOPIC, every=3),)
    with pytest.raises(UserError, match="topic is measured every 3 steps, and keep_every is None"):
        plan_of(measures=measures)
    plan = plan_of({"keep_every": 3, "checkpoint_every": 3}, measures=measures)
    jobs = plan.measured["base", 0]
    assert [(job.step, job.path) for job in jobs] == [
        (3, PurePosixPath("base/seed-0/classify-step-3")),
        (6, PurePosixPath("base/seed-0/classify-step-6")),
        (8, PurePosixPath("base/seed-0/classify")),
    ]


def test_flags_of_scale_and_arm_reach_the_fine_tuning() -> None:
    plan = plan_of(scales={"one": Scale(seeds=1, finetuning={"epochs": (3.0,)})})
    (job,) = plan.measured["ltr_bilstm", 0]
    assert job.flags["epochs"] == (3.0,)
    assert job.flags["features.lstm_layers"] == 1
    assert job.settings["data"] == "topic"


def test_a_probe_sees_every_layer_of_the_frozen_encoder_whatever_an_arm_fine_tunes() -> None:
    arms = {
        "base": Arm(TINY),
        "bilstm": Arm(TINY, finetuning={"features.lstm_layers": 1}),
        "deep": Arm(TINY, {"model.num_layers": 3}),
    }
    best = Probe("best", "accuracy", "classify", "topic", {"epochs": (2.0,)})
    plan = plan_of(arms=arms, measures=(best, dataclasses.replace(best, column="layer 0", layer=0), TOPIC))
    probes = {arm: plan.measured[arm, 0][0] for arm in arms}
    assert probes["base"] is probes["bilstm"]
    assert probes["base"].path == PurePosixPath("base/seed-0/classify-probe")
    assert probes["deep"].flags == {
        "epochs": (2.0,),
        "frozen_layers": 3,
        "features.layers": (0, 1, 2, 3),
        "features.combine": "each",
    }
    assert [len(plan.measured[arm, 0]) for arm in arms] == [2, 2, 2]


def test_a_budget_sets_the_steps_and_keeps_the_shape_of_the_schedule() -> None:
    base = dataclasses.replace(
        TINY,
        num_train_steps=1000,
        optimizer=dataclasses.replace(TINY.optimizer, warmup_steps=100, decay_start=800),
    )
    half = with_budget(base, run_flops(base) / 2)
    assert half.num_train_steps == 500
    assert half.optimizer.warmup_steps == 50
    assert half.optimizer.decay_start == 400
    assert with_steps(base, 10_000).optimizer.decay_start == 8000
    assert with_steps(base, 1).optimizer.decay_start == 0
    assert with_steps(TINY, 10).optimizer.decay_start == "step_0"
    late = dataclasses.replace(base.optimizer, warmup_steps=999, decay_start=999)
    halved = with_steps(dataclasses.replace(base, optimizer=late, num_train_steps=1000), 500).optimizer
    assert (halved.warmup_steps, halved.decay_start) == (499, 499)
    with pytest.raises(UserError, match="below one step"):
        with_budget(base, 10.0)
    growing = dataclasses.replace(
        base, data=dataclasses.replace(base.data, batch_schedule=((0.5, 0.5),)), global_batch_size=8
    )
    more = with_budget(growing, run_flops(dataclasses.replace(base, global_batch_size=8)))
    assert more.num_train_steps == 1333  # of 3/4 of the work


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"base": "none"}, "base 'none' is none of its arms: base, mlm, ltr, ltr_bilstm"),
        ({"arms": {"a b": Arm(TINY)}, "base": "a b", "published": {}}, "'a b' is also a directory's name"),
        ({"arms": {"base": TINY}, "published": {}}, "arm base is Experiment.*; it must be an Arm"),
        ({"measures": TOPIC}, "measures is Finetuned.*; it must be a tuple"),
        ({"published": {"base": 84.4}}, "published of base is 84.4; it must be a dict"),
        ({"scales": {"tiny": 3}}, "scale tiny is 3; it must be a Scale"),
        (
            {"measures": (TOPIC, dataclasses.replace(TOPIC, metric="matthews"))},
            "two measures have the column",
        ),
        (
            {"measures": (TOPIC, dataclasses.replace(TOPIC, column="x", data="other"))},
            "'topic' and 'x' are both named classify, but differ in more than the metric",
        ),
        (
            {"measures": (Probe("x", "f1", "ner", "ner"), Probe("y", "f1", "ner", "other", layer=1))},
            "'x' and 'y' are both named ner-probe, but differ in more than the metric",
        ),
        (
            {"measures": (MinimalPairs("x", "accuracy"), MinimalPairs("y", "accuracy", "sling"))},
            "'x' and 'y' are both named minimal-pairs-pll_word_l2r, .*; give one a variant",
        ),
        ({"published": {"bert": {}}}, "'bert' is none of its arms"),
        ({"published": {"base": {"topic": "80"}}}, "published of base, topic, is '80'; it must be a number"),
        ({"arms": {"base": Arm("base")}}, "experiment of arm base is 'base'; it must be an Experiment"),  # type: ignore[arg-type]
        ({"published": {"base": {"topics": 80.0}}}, "'topics' in published is none of its columns: topic"),
        ({"scales": {}}, "has no scale"),
        (
            {"arms": {**STUDY.arms, "base": Arm(TINY, compared_with="mlms")}},
            "arm base is compared with 'mlms', none of its arms: base, mlm, ltr, ltr_bilstm",
        ),
        (
            {"arms": {**STUDY.arms, "base": Arm(TINY, measured=("mnli",))}},
            "arm base has measure 'mnli'; valid: classify",
        ),
        (
            {"arms": {"base": Arm(TINY, measured="classify")}, "published": {}},  # type: ignore[arg-type]
            "arm base: measured is 'classify'; it must be a tuple, of which each item is a string",
        ),
        (
            {"measures": (MinimalPairs("BLiMP", "accuracy", score="pll_word_ltr"),), "published": {}},  # type: ignore[arg-type]
            "measure BLiMP: score is 'pll_word_ltr'; valid: pll, pll_word_l2r$",
        ),
        (
            {"measures": (dataclasses.replace(TOPIC, variant="[v2]"),), "published": {}},
            r"topic: 'classify-\[v2\]' is also a directory's name; use letters, .* in its variant",
        ),
        (
            {"scales": {"tiny": Scale(1, measures=TOPIC)}},  # type: ignore[arg-type]
            "scale tiny: measures is Finetuned.*; it must be a tuple",
        ),
        (
            {
                "scales": {"tiny": Scale(1, measures=(HeldoutLM("LM", "bits_per_byte"),))},
                "published": {"base": {"LM": 1.0}},
            },
            "'LM' in published is none of its columns: topic",
        ),
    ],
)
def test_a_wrong_study_says_what_is_wrong(changes: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        dataclasses.replace(STUDY, **changes)  # type: ignore[arg-type]


def test_a_study_at_a_scale_has_its_arms_and_what_is_published_of_them() -> None:
    scale = STUDY.scales["three_jobs"]
    study = STUDY.at(scale)
    assert study.arms == scale.arms
    assert (study.base, study.measures) == ("base", STUDY.measures)
    assert study.published == {"base": STUDY.published["base"]}
    assert study.at(study.scales["three_jobs"]) == study
    assert STUDY.at(STUDY.scales["tiny"]) is STUDY


def test_two_sets_of_pairs_have_a_directory_each() -> None:
    pairs = MinimalPairs("x", "accuracy"), MinimalPairs("y", "accuracy", "sling", variant="sling")
    assert paths(plan_of(measures=pairs))[1:3] == [
        "base/seed-0/minimal-pairs-pll_word_l2r",
        "base/seed-0/minimal-pairs-pll_word_l2r-sling",
    ]


def test_a_probe_has_no_layer_below_the_embeddings() -> None:
    with pytest.raises(UserError, match="x: layer is -1; it must be 0, the embeddings, or more"):
        Probe("x", "f1", "ner", "ner", layer=-1)


def test_a_probe_has_no_layer_above_the_last() -> None:
    probes = tuple(Probe(f"layer {n}", "f1", "ner", "ner", layer=n) for n in range(3))
    with pytest.raises(UserError, match="layer 2 shows layer 2, but the models have at most 1"):
        plan_of(measures=probes)
    plan_of({"model.num_layers": 2}, measures=probes)


@pytest.mark.parametrize(
    ("kind", "metric", "valid"),
    [(HeldoutLM, "bits_per_bite", "bits_per_byte"), (MinimalPairs, "acuracy", "accuracy")],
)
def test_a_measure_has_no_metric_that_it_does_not_take(
    kind: type[HeldoutLM | MinimalPairs], metric: str, valid: str
) -> None:
    with pytest.raises(UserError, match=f"x: no metric '{metric}'; valid: .*{valid}"):
        kind("x", metric)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("model.num_layer", "model.num_layers"),
        ("data.maskin.rate", "data.masking"),
        ("data.phases.0.fractio", "data.phases.0.fraction"),
        ("steps", ""),
        ("num_train_steps.x", "num_train_steps"),
    ],
)
def test_an_unknown_setting_is_named(name: str, nearest: str) -> None:
    with pytest.raises(UserError, match=f"arm base: unknown setting '{name}'; nearest: .*{nearest}"):
        plan_of({name: 1})


@pytest.mark.parametrize(
    ("of_base", "of_other", "measured"), [((512,), (256,), None), ((512,), (32, 96), 96), ((24,), (128,), 24)]
)
def test_heldout_sequences_are_no_longer_than_those_that_each_arm_learnt_from(
    of_base: tuple[int, ...], of_other: tuple[int, ...], measured: int | None
) -> None:
    changes = [
        {"data.phases": tuple(Phase(length, 3, 1 / len(arm)) for length in arm)}
        for arm in (of_base, of_other)
    ]
    arms = {name: Arm(TINY, change) for name, change in zip(("base", "other"), changes, strict=True)}
    scale = Scale(seeds=1, changes={"model.max_position_embeddings": 512})
    plan = plan_of(arms=arms, measures=(HeldoutLM("LM", "mlm_loss"),), scales={"one": scale})
    jobs = [job for jobs in plan.measured.values() for job in jobs]
    assert [job.flags for job in jobs] == [{"max_seq_length": measured} if measured else {}] * 2


@pytest.mark.parametrize("measure", [HeldoutLM("bits", "bits_per_byte"), MinimalPairs("BLiMP", "accuracy")])
def test_an_arm_that_predicts_no_tokens_is_not_measured_by_their_probabilities(measure: Measure) -> None:
    arms = {**STUDY.arms, "rtd": Arm(TINY, {"objective": ReplacedTokenDetection()})}
    with pytest.raises(UserError, match=f"arm rtd: objective rtd trains no .* measure {measure.name} needs"):
        plan_of(arms=arms, measures=(TOPIC, measure))
    arms["rtd"] = dataclasses.replace(arms["rtd"], measured=("classify",))
    plan = plan_of(arms=arms, measures=(TOPIC, measure))
    assert [job.measure for job in plan.measured["rtd", 0]] == [TOPIC]
