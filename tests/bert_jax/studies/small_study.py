"""Studies that take seconds."""

import dataclasses
from typing import Any

from bert_jax.config import OptimizerConfig
from bert_jax.model_config import ModelConfig
from bert_jax.objectives import LeftToRight, MaskedLM
from bert_jax.objectives.experiment import Experiment
from bert_jax.studies.plan import Plan, make_plan
from bert_jax.study import Arm, Changes, Finetuned, Scale, Study
from data_pipeline.config import DataConfig, Phase

TINY = Experiment(
    model=ModelConfig(
        vocab_size=100,
        num_layers=1,
        hidden_size=16,
        num_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
    ),
    data=DataConfig(phases=(Phase(max_seq_length=32, max_predictions_per_seq=5),)),
    optimizer=OptimizerConfig(learning_rate=1e-3, warmup_steps=2),
    num_train_steps=8,
    global_batch_size=8,
    log_every=2,
    eval_every=4,
    eval_examples=16,
    checkpoint_every=4,
)

TOPIC = Finetuned(
    "topic",
    "accuracy",
    "classify",
    "topic",
    {"learning_rate": (1e-3, 2e-3), "epochs": (1.0,), "seeds": 2, "max_seq_length": 16},
)

STUDY = Study(
    name="tiny",
    title="Arms of a small model",
    base="base",
    arms={
        "base": Arm(TINY),
        "mlm": Arm(TINY.with_objective(MaskedLM())),
        "ltr": Arm(TINY.with_objective(LeftToRight())),
        "ltr_bilstm": Arm(
            TINY.with_objective(LeftToRight()),
            finetuning={"features.lstm_layers": 1, "features.lstm_width": 8},
        ),
    },
    measures=(TOPIC,),
    scales={
        "tiny": Scale(seeds=2),
        "one": Scale(seeds=1),
        "three_jobs": Scale(
            seeds=1,
            arms={"base": Arm(TINY), "longer": Arm(TINY, finetuning={"epochs": (2.0,)})},
            base="base",
        ),
    },
    published={"base": {"topic": 84.4}, "mlm": {"topic": 83.9}},
)


def plan_of(changes: Changes | None = None, scale: str = "one", **fields: Any) -> Plan:
    """The plan of the study at one of its scales, with changes of all arms, and with other fields."""
    study = dataclasses.replace(STUDY, **{"published": {}, **fields})
    return make_plan(study, scale, study.scales[scale], changes or {})
