"""What makes XLA compile the tests' small programs faster."""

import importlib.metadata

_MINOR = int(importlib.metadata.version("jaxlib").split(".")[1])
XLA_FLAGS = "--xla_cpu_use_fusion_emitters=false" if _MINOR < 12 else ""
"""Without these emitters a tiny step is compiled in half the time; from 0.12 on there is no choice."""
