"""Text that others chose, where a terminal or a reader of lines would obey it: control characters are seen instead.

Names of tools, arguments, paths, what agents call themselves: all of it may hold line ends, escape sequences and
changes of direction. Whatever prints it for a person, or writes it into a line of the log, passes it through here.
"""


def visible(text: str, keep: str = "") -> str:
    """Text with every character that is not printable as its escape (`\\x1b`, `\\n`), but for those in `keep`."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in keep else repr(char)[1:-1] for char in text)
