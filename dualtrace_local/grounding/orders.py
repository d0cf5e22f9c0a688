"""Words that read as orders to a model. A memory that holds such is kept, since people say such things, and marked where it is shown."""

from __future__ import annotations

import re

_ORDERS = re.compile(
    r"""
    \b(?:ignore|disregard|forget|override)\b[^.\n]{0,40}\b(?:instructions?|rules?|prompts?|question|above|previous)\b
  | \b(?:system|developer)\s(?:note|prompt|message|override)\b | (?:^|[\n"'])\s*(?:system|developer)\s?:
  | \bnote\sto\s(?:the\s)?(?:judge|assistant|model|ai)\b
  | \b(?:you\s(?:must|are\snow|will\snow|shall)|from\snow\son|always)\s(?:you\s)?(?:only\s)?(?:answer|reply|respond|output|obey)\b
  | \b(?:output|verdict)\W{0,3}[:=]?\W{0,3}(?:correct|wrong)\b
  | <\|[^\s|]{1,30}\|> | \[/?INST\] | <</?SYS>> | </?(?:data|system|instructions?)\b[^>\n]{0,20}>
    """,
    re.VERBOSE | re.IGNORECASE,
)


def orders_a_model(text: str) -> bool:
    """Whether ``text`` holds words that read as an order to a model. Found by plain patterns: a mark for people, no defence."""
    return bool(_ORDERS.search(text))
