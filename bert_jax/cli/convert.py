"""`bert-jax convert --model DIR --output DIR`: a model for transformers, google-research/bert or numpy."""

import shlex

from bert_jax.cli.flags.convert import Convert
from bert_jax.cli.model_source import note_assumed
from bert_jax.formats.convert import convert
from bert_jax.formats.huggingface import transformers_class
from bert_jax.formats.pretrained import PretrainedModel
from bert_jax.model_config import DIRECTIONS
from data_pipeline.corpus.special_tokens import special_tokens


def run(args: Convert) -> None:
    """Converts, and prints what the model consists of and how to load the result."""
    source = args.source
    model = convert(source.model, args.output, args.format, source.step, source.activation, args.part)
    note_assumed(model)
    print(_describe(model))
    print(f"wrote {args.output}")
    if args.format == "hf":
        loader = transformers_class(model)
        print(f"load it:  transformers.{loader}.from_pretrained({str(args.output)!r})")
    if args.format == "tf1":
        ours = (model.config.activation, f"a LayerNorm epsilon of {model.config.layer_norm_epsilon:g}")
        for theirs, own in zip(("gelu_tanh", "a LayerNorm epsilon of 1e-12"), ours, strict=True):
            if own != theirs:
                print(f"note: google-research/bert computes {theirs}; this model has {own}")
    if args.format != "hf" and model.head is not None:
        print(f"note: the head of {model.facts['task']} is left out; `bert-jax predict` applies it")
    if model.config.attention == "bidirectional" and "language_model" in model.params:
        mask = special_tokens(model.tokenizer).mask
        print(f'try it:  bert-jax fill-mask --model {shlex.quote(str(args.output))} "Text with a {mask}."')


def _describe(model: PretrainedModel) -> str:
    """One line on a model: what it consists of, what it lacks and which parts were left out."""
    config = model.config
    casing = f"{model.vocabulary.casing}, " if model.vocabulary else ""
    line = (
        f"{model.name}: {config.num_layers} layers, width {config.hidden_size}, {casing}{config.activation}"
    )
    if config.attention != "bidirectional":
        line += f", {DIRECTIONS[config.attention]}"
    if model.missing:
        line += f"; without {', '.join(model.missing)}"
    if model.left_out:
        more = f" and {len(model.left_out) - 3} more" if len(model.left_out) > 3 else ""
        line += f"; left out: {', '.join(model.left_out[:3])}{more}"
    return line
