"""One base class, and one class for each boundary at which something can be refused.

The message of each is a whole sentence for a person: what is wrong, with the value, and what to do.
The command line prints it as one line and ends with ``exit_code``; everything else is a bug and may be a traceback.
"""


class DualtraceError(Exception):
    """Base of every error that is meant for the user.

    ``exit_code`` is the exit status of the command line: 1 fatal, 2 usage, 3 finished with failed records, 11 store in use.
    """

    exit_code = 1


class ConfigError(DualtraceError):
    """models.yaml, the conditions file or an option holds something that is not allowed."""

    exit_code = 2


class DataError(DualtraceError):
    """A source as a whole cannot be read. A single bad record is a ``Rejected``, never this."""


class WeightsError(DualtraceError):
    """A model's files are missing, changed, or not allowed to be loaded."""


class EngineError(DualtraceError):
    """The engine cannot start, or died twice. Finished work is kept; the same command goes on from there."""


class StoreError(DualtraceError):
    """The store cannot be opened, or is not the store that was expected."""


class StoreBusyError(StoreError):
    """Another process holds the writer lock."""

    exit_code = 11


class RunError(DualtraceError):
    """A run folder belongs to another experiment (one of its fingerprints differs)."""
