"""Compiled programs kept between starts."""

from pathlib import Path

import jax

DIRECTORY = "compilation-cache"
"""The directory of compiled programs in a work directory."""


def keep_compiled(workdir: Path) -> None:
    """Keeps compiled programs in the work directory, so that going on starts in seconds."""
    if jax.config.values["jax_compilation_cache_dir"] is None:
        jax.config.update("jax_compilation_cache_dir", str((workdir / DIRECTORY).absolute()))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
