"""Estimated cycles and fraction of peak of one training step, by the real TPU compiler on a CPU machine.

The work by default: BERT-BASE, 64 sequences of 128 a chip on v5e:2x2, bfloat16, dropout 0.1, clipping,
AdamW. Needs the extra [tpu]; takes minutes.

    python benchmarks/tpu_compile.py
    python benchmarks/tpu_compile.py --experiment large --phase 1 --batch 16 --topology v5p:2x2x1
    python benchmarks/tpu_compile.py --experiment modern_base --length 128 --topology v6e:2x2
"""

import argparse
import dataclasses
import json
import math
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, get_args

from bert_jax.config import ParallelConfig, Remat
from bert_jax.model_config import AttentionKernel
from bert_jax.objectives.experiment import Experiment
from bert_jax.tpu.report import compile_step
from bert_jax.tpu.topology import CHIPS, open_slice
from data_pipeline.config import Phase
from experiments import EXPERIMENTS


def parse_arguments(description: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--experiment", choices=EXPERIMENTS, default="base", metavar="NAME")
    parser.add_argument("--topology", default="v5e:2x2", help=f"chip ({', '.join(CHIPS)}) and shape")
    parser.add_argument("--batch", type=int, default=64, help="sequences a chip")
    parser.add_argument("--phase", type=int, choices=(0, 1), default=0, help="of BASE, 0: length 128; 1: 512")
    parser.add_argument("--length", type=int, help="instead of the phase's; predictions in proportion")
    parser.add_argument("--layers", type=int, help="instead of the experiment's")
    parser.add_argument("--remat", choices=get_args(Remat), default="none")
    parser.add_argument("--attention-kernel", choices=get_args(AttentionKernel), default="auto")
    parser.add_argument("--no-windows", action="store_true", help="all layers attend to the whole sequence")
    parser.add_argument("--fsdp", type=int, default=1)
    parser.add_argument("--accumulation-steps", type=int, default=1)
    return parser.parse_args()


def at_length(phase: Phase, length: int | None) -> Phase:
    """The phase at another length, with as many predictions for each position."""
    if length is None:
        return phase
    predictions = math.ceil(phase.max_predictions_per_seq * length / phase.max_seq_length)
    return dataclasses.replace(phase, max_seq_length=length, max_predictions_per_seq=predictions)


def compiled_work(args: argparse.Namespace, chips: int) -> tuple[Experiment, Phase]:
    """What is compiled for so many chips: an experiment with its batch size, and one of its phases."""
    named = EXPERIMENTS[args.experiment]
    model = dataclasses.replace(
        named.model,
        num_layers=args.layers or named.model.num_layers,
        attention_kernel=args.attention_kernel,
    )
    if args.no_windows:
        model = dataclasses.replace(model, attention_window=None, global_every=None)
    phase = at_length(named.data.phases[args.phase], args.length)
    parallel = ParallelConfig(fsdp=args.fsdp, accumulation_steps=args.accumulation_steps, remat=args.remat)
    experiment = dataclasses.replace(named, model=model, parallel=parallel)
    return experiment.with_batches_of(args.batch * chips), phase


def print_json(args: argparse.Namespace, result: Mapping[str, Any]) -> None:
    versions = {name: version(name) for name in ("jax", "jaxlib", "libtpu")}
    print(json.dumps({"settings": vars(args), "versions": versions, **result}, indent=2))


def main() -> None:
    args = parse_arguments(__doc__)
    where = open_slice(args.topology)
    experiment, phase = compiled_work(args, len(where.devices))
    print_json(args, dataclasses.asdict(compile_step(experiment, phase, where)))


if __name__ == "__main__":
    main()
