"""dualtrace-local: a local-first memory for language-model assistants.

``Memory`` is the whole Python API: ``Memory.open(store)``, then ``.teach(files)``, ``.remember(text)``, ``.ask(question)``,
``.search(query)``, ``.edit(id, ...)``, ``.forget(...)``.
Importing this package loads no heavy library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .pipeline.memory import Memory

__all__ = ["Memory", "__version__"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Load ``Memory`` on first use, so that ``dualtrace --help`` stays quick."""
    if name == "Memory":
        from .pipeline.memory import Memory

        return Memory
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
