"""Where model files come from, in the order that models.yaml gives, and what may be loaded.

A *ready folder* holds safetensors and nothing that could run as code. It is either a folder of the user's, used as it is, or
``<cache>/models/<name>``, which ``pull`` makes once. There the file ``dualtrace.json`` lists the SHA-256 of every other file;
it is written last, inside a working folder that is then renamed, so a folder that has it is whole.
"""

from .fetch import pull
from .folders import check, located, ready
from .safety import refuse_unsafe

__all__ = ["check", "located", "pull", "ready", "refuse_unsafe"]
