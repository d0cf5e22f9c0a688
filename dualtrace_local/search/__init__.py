"""What of a store a question is shown, and in which state. No model is called but the embedder.

Scope and condition decide what is visible; keys are ranked by meaning and by words; what is close enough and fits the budget is
delivered in the order of its dates. The state follows from what was delivered (paper section 3.4); verbatim rounds, which are neither
fact nor scene, are state B.
"""

from .deliver import search
from .items import AROUND
from .merged import lift
from .places import BESIDE, Place, Places, places_of
from .ranking import Ranked, Ranking, rank
from .views import View, key_of, kinds_of, quote_for, shown_scene, tier_of

__all__ = [
    "AROUND",
    "BESIDE",
    "Place",
    "Places",
    "Ranked",
    "Ranking",
    "View",
    "key_of",
    "kinds_of",
    "lift",
    "places_of",
    "quote_for",
    "rank",
    "search",
    "shown_scene",
    "tier_of",
]
