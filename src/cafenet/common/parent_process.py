"""Processes that end with the one that started them, also if that one is killed and can end nobody.

This file needs nothing of the package: helpers run it before they import what takes seconds.
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
    """From now on, end this process as soon as its parent is gone; `parent` is the parent's number.

    On Linux the kernel does so. Elsewhere a thread looks.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it was gone before the kernel was asked
            os._exit(1)
    else:
        threading.Thread(target=_end_after, args=(parent,), daemon=True).start()


def _end_after(parent: int) -> None:
    process = multiprocessing.parent_process()
    if process is not None:
        process.join()
    elif os.name == "nt":  # a process keeps the number of a parent that has ended
        return
    else:
        while os.getppid() == parent:
            time.sleep(_LOOK_EVERY_SECONDS)
    os._exit(1)
