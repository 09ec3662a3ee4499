"""The language of a file: from its name, else from its first line."""

import re

from .languages import LANGUAGES

_BY_ENDING = {ending: name for name, language in LANGUAGES.items() for ending in language.endings.split()}
_BY_FILE_NAME = {file: name for name, language in LANGUAGES.items() for file in language.file_names.split()}
_BY_SHEBANG = [
    (re.compile(language.shebang.encode()), name) for name, language in LANGUAGES.items() if language.shebang
]
_CPP_HEADER = re.compile(rb"^[ \t]*(class|namespace|template|using|public:|private:)\b|\bstd::|^#include <\w+>", re.M)
_OBJC_HEADER = re.compile(rb"^[ \t]*@(interface|protocol|class|import)\b|^#import\b", re.M)


def language_of(path: str, head: bytes) -> str:
    """The name of the grammar for a file, from its path and its first bytes; "" where there is none."""
    name = path.rpartition("/")[2].lower()
    if language := _BY_FILE_NAME.get(name):
        return language
    ending = name.rpartition(".")[2] if "." in name else ""
    language = _BY_ENDING.get(ending, "")
    if ending == "h":
        return "objc" if _OBJC_HEADER.search(head) else "cpp" if _CPP_HEADER.search(head) else "c"
    if ending == "m" and not _OBJC_HEADER.search(head):
        return ""  # MATLAB, Mercury, Mathematica
    if not language and head.startswith(b"#!"):
        shebang = head.split(b"\n", 1)[0]
        return next((name for pattern, name in _BY_SHEBANG if pattern.search(shebang)), "")
    return language
