"""Processes that end together with the process that started them, even if that one is killed.

This file imports nothing of the package, because helper processes run it before imports that take seconds.
"""

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import time

_PR_SET_PDEATHSIG = 1
_LOOK_EVERY_SECONDS = 0.5


def end_with_parent(parent: int) -> None:
    """Makes this process end as soon as its parent has ended.

    On Linux the kernel ends it. On other systems a thread watches the parent.

    Args:
        parent: Process number of the parent.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent ended before the kernel was asked
            os._exit(1)
    else:
        threading.Thread(target=_end_after, args=(parent,), daemon=True).start()


def _end_after(parent: int) -> None:
    process = multiprocessing.parent_process()
    if process is not None:
        process.join()
    elif os.name == "nt":  # Windows keeps the parent's number after the parent has ended, so polling is useless
        return
    else:
        while os.getppid() == parent:
            time.sleep(_LOOK_EVERY_SECONDS)
    os._exit(1)
