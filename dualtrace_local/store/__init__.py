"""LanceDB tables behind one class: writer lock, durable commits, repair on opening. The sole importer of lancedb and pyarrow."""

from .changes import FIELDS, Change, undone
from .keys import TAUGHT_KINDS, Kind, key_text, terms
from .proof import Needles, search_files, seen
from .store import IN_MEMORY, Store, StoreInfo
from .tables import LedgerRow, Outcome, Selection, total_of
from .vectors import Hit, Keys

__all__ = [
    "FIELDS",
    "IN_MEMORY",
    "TAUGHT_KINDS",
    "Change",
    "Hit",
    "Keys",
    "Kind",
    "LedgerRow",
    "Needles",
    "Outcome",
    "Selection",
    "Store",
    "StoreInfo",
    "key_text",
    "search_files",
    "seen",
    "terms",
    "total_of",
    "undone",
]
