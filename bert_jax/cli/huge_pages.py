"""Lets the C library's allocator use huge pages, which makes training steps on a CPU faster.

XLA's CPU client allocates fresh memory for the intermediate arrays of every step, and the kernel maps it
page by page, which takes about a tenth of a BERT-BASE step and a quarter of one of quickstart's size, as
`python benchmarks/allocator.py` measures. glibc reads the setting only when a process starts, so the process
restarts itself once.
"""

import os
import sys

_VARIABLE = "GLIBC_TUNABLES"


def restart_with_huge_pages() -> None:
    """Restarts this process with the setting; does nothing if the variable is set.

    So it restarts only once, and leaves alone a value that the user has set.
    """
    if sys.platform == "linux" and _VARIABLE not in os.environ:
        os.environ[_VARIABLE] = "glibc.malloc.hugetlb=1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
