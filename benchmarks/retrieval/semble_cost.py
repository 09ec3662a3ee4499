"""Runs in semble's own environment: indexes a folder, answers questions, prints what that took as JSON."""
# pyright: basic, reportMissingImports=false

import json
import resource
import sys
import time

from semble.index.index import SembleIndex
from semble.search import search
from semble_answers import model_at


def main() -> None:
    job = json.load(sys.stdin)
    model = model_at(job["model"])
    started = time.perf_counter()
    index = SembleIndex.from_path(job["folder"], model_path=model)
    built = time.perf_counter() - started
    took: list[float] = []
    for text in job["questions"]:
        started = time.perf_counter()
        search(text, index.model, index._semantic_index, index._bm25_index, index.chunks, 10)
        took.append((time.perf_counter() - started) * 1000)
    used = [resource.getrusage(who).ru_maxrss * 1024 / 1e6 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(json.dumps({"built": built, "megabytes": max(used), "took": took}))


if __name__ == "__main__":
    main()
