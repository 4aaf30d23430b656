"""What makes XLA compile the tests' small programs faster."""

import importlib.metadata

_JAXLIB = tuple(int(part) for part in importlib.metadata.version("jaxlib").split(".")[:3])
XLA_FLAGS = "--xla_cpu_use_fusion_emitters=false" if _JAXLIB < (0, 11, 1) else ""
"""Without these emitters a tiny step is compiled in half the time; jaxlib 0.11.1 leaves no choice."""
