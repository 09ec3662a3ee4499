"""Exit codes on real processes: recorded outputs printed by a command that ends as the recorded one did, through te."""

import os
import random
import subprocess
import tempfile
from pathlib import Path

from ..servers import BIN
from .replayed import recorded_runs


def equal_exit_codes(runs: Path, count: int, seed: int = 7) -> tuple[int, int]:
    """How many of a sample of commands ended alike through te, and how many there were."""
    steps = [step for _, steps in recorded_runs(runs) for step in steps]
    sample = random.Random(seed).sample(steps, min(count, len(steps)))
    equal = 0
    with tempfile.TemporaryDirectory(prefix="bench-te-") as folder:
        env = {**os.environ, "LLMC_DATA_DIR": f"{folder}/data", "TE_AGENT_ID": "bench"}
        for number, step in enumerate(sample):
            path = Path(folder, f"{number}.py")
            path.write_text(step.output)
            code = step.exit_code & 0xFF
            line = f"cat {path}; exit {code}"
            done = subprocess.run([BIN / "te", "-c", line], env=env, capture_output=True, check=False, timeout=60)
            equal += done.returncode == code
            path.unlink()
    return equal, len(sample)
