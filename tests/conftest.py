"""What several test modules share: the real embedding model, loaded once."""

import pytest
from hypothesis import settings

from dualtrace_local import config, weights
from dualtrace_local.embed import Embedder, load_embedder

config.prepare_environment(cpu=True)
settings.register_profile("same every time", derandomize=True, database=None, deadline=None)
settings.load_profile("same every time")


@pytest.fixture(scope="session")
def embedder() -> Embedder:
    """MiniLM, as ``scripts/test.sh`` fetched it."""
    name = "all-minilm-l6-v2"
    spec = config.read_models().spec(name)
    return load_embedder(name, weights.ready(name, spec), spec.dimension)
