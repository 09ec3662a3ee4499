"""Runs in semble's own environment: reads folders and questions from stdin, prints what semble finds as JSON.

Its model is not in its wheel and would have to be downloaded; wordllama's vectors, which are in a wheel, stand in.
"""
# pyright: basic, reportMissingImports=false

import importlib.util
import json
import os
import sys

import numpy as np
from model2vec import StaticModel
from safetensors.numpy import load_file
from semble.index.index import SembleIndex
from semble.search import search
from tokenizers import Tokenizer


def model_at(place: str) -> str:
    if not os.path.exists(place):
        spec = importlib.util.find_spec("wordllama")
        assert spec is not None
        assert spec.submodule_search_locations
        wheel = spec.submodule_search_locations[0]
        (weights,) = load_file(f"{wheel}/weights/l2_supercat_256.safetensors").values()
        tokenizer = Tokenizer.from_file(f"{wheel}/tokenizers/l2_supercat_tokenizer_config.json")
        StaticModel(weights.astype(np.float32), tokenizer).save_pretrained(place)
    return place


def main() -> None:
    job = json.load(sys.stdin)
    model = model_at(job["model"])
    kinds: list[list] = [[], []]
    for folder, questions in job["folders"]:
        index = SembleIndex.from_path(folder, model_path=model)
        for kind, alpha in enumerate((0.0, None)):
            found = [
                search(text, index.model, index._semantic_index, index._bm25_index, index.chunks, 10, alpha=alpha)
                for text in questions
            ]
            kinds[kind].append(
                [[(hit.chunk.file_path, hit.chunk.start_line, hit.chunk.end_line) for hit in hits] for hits in found]
            )
    print(json.dumps(kinds))


if __name__ == "__main__":
    main()
