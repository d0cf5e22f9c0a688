"""Silence while a library loads a model."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """While a model loads: what anything prints, C libraries and child processes too, goes to stderr, and warnings nowhere.

    stdout is for our own output alone, and a library's start-up notices are not about anything a user did.
    """
    sys.stdout.flush()
    kept, disabled = os.dup(1), logging.root.manager.disable
    logging.disable(logging.WARNING)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        logging.disable(disabled)
