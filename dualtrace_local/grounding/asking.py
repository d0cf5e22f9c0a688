"""What a question asks for, told by its words: advice, a distance in time, an order, an age, a count or a sum."""

from __future__ import annotations

import re

ADVICE = re.compile(r"\b(?:suggest\w*|recommend\w*|advice|advise|ideas?|tips?|should\s+I|could\s+I|would\s+you)\b", re.IGNORECASE)
"""Advice is asked for; then an answer may bring names of its own."""

TASTE = re.compile(
    r"\b(?:likes?|liked|loves?|loved|enjoy\w*|prefers?|preferred|favou?rites?|hates?|hated|dislikes?|avoids?|avoiding|allerg\w+|vegan|vegetarian"
    r"|fan\s+of|into|interested\s+in|tired\s+of|fed\s+up|can['’]?t\s+stand|not\s+keen|owns?|owned|wants?\s+to|looking\s+for|hobby|hobbies)\b",
    re.IGNORECASE,
)
"""Words by which people tell what they like, avoid, want or own."""

_UNIT = r"(?:seconds?|minutes?|hours?|days?|weeks?|months?|years?)"
DISTANCE = re.compile(rf"\bhow\s+(?:many|much)\s+(?:\w+\s+)?(?:{_UNIT}|time)\b|\bhow\s+long\b|\bhow\s+far\s+apart\b", re.IGNORECASE)
"""How far two times lie apart, or how long ago something was."""

ORDER = re.compile(
    r"\b(?:first|last|earlier|earliest|latest|later|before|after|order|sequence|most\s+recent(?:ly)?|when|what\s+date|which\s+day)\b",
    re.IGNORECASE,
)
"""What came first or last, or when it was."""

AGE = re.compile(r"\b(?:how\s+old|older|younger|(?:my|her|his|their)\s+age)\b", re.IGNORECASE)

COUNT = re.compile(rf"\bhow\s+(?:many|often)\b(?!\s+(?:\w+\s+)?{_UNIT}\b)|\bnumber\s+of\b", re.IGNORECASE)
"""How many things or times; a number of hours or days is a distance."""

SUM = re.compile(r"\b(?:in\s+total|total|altogether|in\s+all|combined|sum|overall)\b", re.IGNORECASE)
