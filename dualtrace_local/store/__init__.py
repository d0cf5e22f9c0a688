"""LanceDB tables behind one class: writer lock, durable commits, repair on opening. The sole importer of lancedb and pyarrow."""

from .archive import Bundle, row_of
from .changes import FIELDS, Change, undone
from .keys import TAUGHT_KINDS, Kind, key_text, terms
from .proof import Needles, search_files, seen
from .reading import StoreInfo
from .store import IN_MEMORY, Store
from .tables import LedgerRow, Outcome, Selection, total_of
from .vectors import Hit, Keys

__all__ = [
    "FIELDS",
    "IN_MEMORY",
    "TAUGHT_KINDS",
    "Bundle",
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
    "row_of",
    "search_files",
    "seen",
    "terms",
    "total_of",
    "undone",
]
