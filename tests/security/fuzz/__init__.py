"""Inputs that nobody thought of, one file a target.

In the suite the examples are the same in every run. `LLMC_FUZZ_SECONDS=600 pytest tests/security/fuzz/test_diffs.py`
makes new ones for about that long.
"""

import os
from typing import Any

from hypothesis import HealthCheck, Phase, settings

_SECONDS = float(os.environ.get("LLMC_FUZZ_SECONDS", "0"))


def examples(count: int, *, a_second: int) -> Any:
    """So many examples in the suite; by hand as many as fit into the time, at so many a second."""
    return settings(
        max_examples=max(count, int(_SECONDS * a_second)),
        derandomize=not _SECONDS,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
    )
