"""Escape control characters in untrusted text before a terminal or a line-based log sees it.

Names of tools, arguments, paths and agents may hold line ends, escape sequences and bidirectional controls. Whatever
prints them for a person, or writes them into a log line, passes them through here.
"""


def visible(text: str, keep: str = "") -> str:
    """Text with every character that is not printable as its escape (`\\x1b`, `\\n`), but for those in `keep`."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in keep else repr(char)[1:-1] for char in text)
