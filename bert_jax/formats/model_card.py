"""A model card: what the files of a model say about it."""

import jax

from bert_jax.formats.pretrained import PretrainedModel


def model_card(model: PretrainedModel, loader: str) -> str:
    """Markdown with the front matter that model hubs read.

    Args:
      model: its facts come after its shape.
      loader: name of the class in transformers that loads it.
    """
    config = model.config
    facts = {
        "objective": config.objective,
        "shape": f"{config.num_layers} layers, width {config.hidden_size}, {config.num_heads} heads",
        "parameters": f"{sum(array.size for array in jax.tree.leaves(model.params)):,}",
        "activation": config.activation,
        **model.facts,
    }
    table = "".join(f"| {name} | {value} |\n" for name, value in facts.items())
    return (
        f"---\nlibrary_name: transformers\n---\n# {model.name}\n\n"
        f"Written by bert-jax. `transformers.{loader}` loads it.\n\n"
        f"| | |\n|---|---|\n{table}"
    )
