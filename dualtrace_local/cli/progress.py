"""Progress for people, on stderr."""

from __future__ import annotations

import sys
import time

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from dualtrace_local.masking import mask
from dualtrace_local.pipeline.parts import Listener

from .common import say

EVERY = 15.0
"""Seconds between two lines where stderr is no terminal."""


class Progress(Listener):
    """A bar with elapsed time and time left on a terminal; elsewhere a line every few seconds, with the same figures."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        self._name, self._total, self._done = "", 0, 0
        self._started = self._told = 0.0

    def say(self, line: str) -> None:
        """Print a line beside the bar."""
        if self._bar is not None:
            self._bar.console.print(mask(line), markup=False, highlight=False, soft_wrap=True)
        else:
            say(line)

    def stage(self, name: str, total: int) -> None:
        """Begin a bar."""
        self.end()
        self._name, self._total, self._done = name, total, 0
        self._started = self._told = time.monotonic()
        if sys.stderr.isatty():
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
            )
            self._bar = Bar(*columns, console=self._console)
            self._bar.start()
            self._task = self._bar.add_task(name, total=total or None)

    def advance(self, done: int = 1) -> None:
        """Move on."""
        self._done += done
        if self._bar is not None and self._task is not None:
            self._bar.advance(self._task, done)
        elif (now := time.monotonic()) - self._told >= EVERY:
            self._told = now
            click.echo(self._line(now), err=True)

    def end(self) -> None:
        """Finish the bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = self._task = None
        elif self._name:
            click.echo(self._line(time.monotonic()), err=True)
        self._name = ""

    def _line(self, now: float) -> str:
        spent = now - self._started
        left = spent / self._done * (self._total - self._done) if self._done and self._total > self._done else 0.0
        more = f", about {left:.0f} s left" if left else ""
        return f"{self._name}: {self._done} of {self._total or '?'} in {spent:.0f} s{more}"
