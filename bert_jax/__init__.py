"""BERT pretraining in JAX and Flax: the model, the training step and the loop.

Nothing below this package imports TensorFlow, so that it runs on accelerator machines that
have none. Importing this module is cheap: it does not import jax either.
"""

__version__ = "0.1.0"
