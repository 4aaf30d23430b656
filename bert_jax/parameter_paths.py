"""Paths of parameters: the names of the modules around an array, and its own."""

from jax.tree_util import DictKey


def names_of(path: tuple) -> tuple[str, ...]:
    """The names in a path of `jax.tree_util`, such as ("encoder", "layer_0", "attention", "query", "kernel").

    What holds the parameters, such as a field of an optimizer's state, is left out.
    """
    return tuple(key.key for key in path if isinstance(key, DictKey))
