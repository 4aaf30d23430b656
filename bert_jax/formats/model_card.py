"""The model card: a README that tells where an exported model comes from."""

from bert_jax.formats.pretrained import PretrainedModel
from bert_jax.objectives import objective_name


def model_card(model: PretrainedModel, loader: str, num_parameters: int) -> str:
    """The card as Markdown, with the front matter that model hubs read.

    Args:
      model: the card gives its shape, then its facts.
      loader: name of the transformers class that loads it.
      num_parameters: that were written.
    """
    config = model.config
    facts = {
        **({"objective": objective_name(model.objective)} if model.objective else {}),
        "shape": f"{config.num_layers} layers, width {config.hidden_size}, {config.num_heads} heads",
        "parameters": f"{num_parameters:,}",
        "activation": config.activation,
        **model.facts,
    }
    table = "".join(f"| {name} | {value} |\n" for name, value in facts.items())
    return (
        f"---\nlibrary_name: transformers\n---\n# {model.name}\n\n"
        f"Written by bert-jax. `transformers.{loader}` loads it.\n\n"
        f"| | |\n|---|---|\n{table}"
    )
