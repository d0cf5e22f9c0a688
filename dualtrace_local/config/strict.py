"""The base of everything that is read from a file."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """Unknown keys are refused, values are frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True)
