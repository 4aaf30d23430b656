"""Estimated cycles and fraction of peak of one training step, by the real TPU compiler on a CPU machine.

The work by default: BERT-BASE, 64 sequences of 128 a chip on v5e:2x2, bfloat16, dropout 0.1, clipping,
AdamW. Needs the extra [tpu]; takes minutes.

    python benchmarks/tpu_compile.py
    python benchmarks/tpu_compile.py --experiment large --phase 1 --batch 16 --topology v5p:2x2x1
"""

import argparse
import dataclasses
import json
from importlib.metadata import version
from typing import get_args

from bert_jax.config import AttentionKernel, ParallelConfig, Remat
from bert_jax.tpu.report import compile_step
from bert_jax.tpu.topology import CHIPS, open_slice
from experiments import EXPERIMENTS


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--experiment", choices=("base", "large"), default="base")
    parser.add_argument("--topology", default="v5e:2x2", help=f"chip ({', '.join(CHIPS)}) and shape")
    parser.add_argument("--batch", type=int, default=64, help="sequences a chip")
    parser.add_argument("--phase", type=int, choices=(0, 1), default=0, help="0: length 128; 1: 512")
    parser.add_argument("--layers", type=int, help="instead of the experiment's")
    parser.add_argument("--remat", choices=get_args(Remat), default="none")
    parser.add_argument("--attention-kernel", choices=get_args(AttentionKernel), default="auto")
    parser.add_argument("--fsdp", type=int, default=1)
    parser.add_argument("--accumulation-steps", type=int, default=1)
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    where = open_slice(args.topology)
    named = EXPERIMENTS[args.experiment]
    model = dataclasses.replace(
        named.model,
        num_layers=args.layers or named.model.num_layers,
        attention_kernel=args.attention_kernel,
    )
    rows = args.batch * len(where.devices)
    parallel = ParallelConfig(fsdp=args.fsdp, accumulation_steps=args.accumulation_steps, remat=args.remat)
    experiment = dataclasses.replace(named, model=model, global_batch_size=rows, parallel=parallel)
    report = compile_step(experiment, named.data.phases[args.phase], where)
    versions = {name: version(name) for name in ("jax", "jaxlib", "libtpu")}
    print(json.dumps({"settings": vars(args), "versions": versions, **dataclasses.asdict(report)}, indent=2))


if __name__ == "__main__":
    main()
