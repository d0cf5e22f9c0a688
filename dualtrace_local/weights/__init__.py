"""Where model files come from, in the order that models.yaml gives, and what may be loaded.

A *ready folder* holds safetensors and nothing that could run as code. It is either a folder of the user's, used as it is, or
``<cache>/models/<name>``, which ``pull`` makes once. There the file ``dualtrace.json`` lists the SHA-256 of every other file;
it is written last, inside a working folder that is then renamed, so a folder that has it is whole. For a model from the hub it also
holds the commit, and the lock file has the same for every machine that shares it. ``bundle`` and ``unbundle`` carry ready folders to
machines without a network.
"""

from .bundle import bundle, unbundle
from .fetch import pull
from .folders import check, files_digest, located, ready
from .lock import read_lock
from .safety import refuse_unsafe

__all__ = ["bundle", "check", "files_digest", "located", "pull", "read_lock", "ready", "refuse_unsafe", "unbundle"]
