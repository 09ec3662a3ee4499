r"""Mask values that look like credentials in summaries of calls and in the lines of commands.

Credentials are recognised by what stands before them (a header, `NAME_TOKEN=`, `--password`, `user:` in a URL) or by
their own form (`ghp_…`, a JWT, a private key). One pattern, one pass; every repetition is bounded or eats what it
matched, so the time grows with the length and no faster. Long text is cut first, where a word ends: half a
credential at a cut would no longer look like one.
"""

import re
from functools import cache, lru_cache

MASK = "•••"
_LOOKED_AT = 512  # characters of a text that a summary can be made from
_CUT = " …"
_WORD = 40  # characters of a name that is worth remembering

_NAMES = (
    r"(?:api[_-]?key|access[_-]?key|private[_-]?key|account[_-]?key|sharedaccess(?:key|signature)|secret|token|passw(?:or)?d|passphrase|credentials?"
    r"|[_-]key|(?<![a-z])pass|[_-]pat|pwd(?=[=:][^/]))(?:[_-](?:value|b64|base64|\d{1,4}))?"
)
_VALUE = r"""(?:"(?:[^"\\]|\\[\s\S])*"?\S*|'(?:[^'\\]|\\[\s\S])*'?\S*|\S+)"""
_NEXT_WORD = r"""['"]?,?\s{1,4}"""  # of a command line, or of a list of words as Python shows it
_CREDENTIAL = "|".join(
    (
        r"(-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----)(?:(?!-----END)[\s\S])+",
        r"""((?i:authorization)['"]?\s{0,4}[:=]\s{0,4}['"]?"""
        r"""(?:(?i:bearer|basic|digest|token|negotiate|aws4-hmac-sha256)\s{1,4})?)[^'"\r\n]+""",
        r"""((?i:cookie)['"]?\s{0,4}:\s{0,4}['"]?)[^'"\r\n]+""",
        rf"""((?i:{_NAMES})['"]?\s{{0,4}}(?:=|:(?!//))\s{{0,4}}){_VALUE}""",
        rf"(--(?:[a-z]{{1,20}}-){{0,3}}(?:password|passwd|pass|passphrase|token|secret|api-?key){_NEXT_WORD}){_VALUE}",
        rf"((?<![\w-])-pass(?:in|out)?{_NEXT_WORD}['\"]?pass:){_VALUE}",
        r"""((?<![\w-])(?:-u|--user)['"]?,?[\s=]{0,4}['"]?[^\s:'"]{1,128}:)[^\s'"]+""",
        r"""((?<=://)[^\s/:@'"]{0,256}:)[^\s/'"]{1,1024}(?=@)""",
        r"""(?<=://)[^\s/:@'"]{20,256}(?=@)""",
        r"((?i:\bbearer)\s{1,4})[\w.~+/=-]{8,}",
        r"\b(?:gh[opusr]_|github_pat_|glpat-|sk-|[sr]k_live_|xox[abeprs]-|AKIA|ASIA|ya29\.|npm_|pypi-|hf_|AIza"
        r"|hv[sb]\.|dop_v1_|SG\.|whsec_)"
        r"[\w./+=-]{8,}",
        r"\beyJ[\w.-]{16,}",
    )
)
# Programs whose -p is a password; of others it may be a port, a path or a prefix.
_LOGIN_PROGRAM = (
    r"""\b(?:sshpass|mysql\w{0,10}|mariadb[\w-]{0,10}|mongo\w{0,10}|(?:docker|podman)['"]?,?\s{1,4}['"]?login)\b"""
)
_LOGIN_FLAG = rf"""((?<=[\s'"])-p(?:{_NEXT_WORD})?){_VALUE}"""
_SECRET_NAME = rf"(?i)(?:[\w-]{{0,80}}?)(?:{_NAMES}|key|pass|authorization|cookie)"
_ASSIGNMENT = rf"(?i)([\w-]{{0,80}}?{_NAMES}=)[\s\S]+"


@cache
def _expression(pattern: str) -> re.Pattern[str]:
    """Compiled when the first call is summarised: it takes 7 ms, which no start should pay."""
    return re.compile(pattern)


def redact(text: str) -> str:
    """Text with everything that looks like a credential masked."""
    text = _expression(_CREDENTIAL).sub(_masked, text)
    if "-p" in text and (program := _expression(_LOGIN_PROGRAM).search(text)):
        text = text[: program.end()] + _expression(_LOGIN_FLAG).sub(_masked, text[program.end() :])
    return text


def redact_word(word: str) -> str:
    """One word of a command line: of `NAME=value` with such a name all the rest is the value, spaces too."""
    return _expression(_ASSIGNMENT).sub(_masked, word) if _expression(_ASSIGNMENT).fullmatch(word) else redact(word)


def is_secret_name(name: str) -> bool:
    """Whether an argument of that name holds a credential."""
    return _is_secret_word(name) if len(name) <= _WORD else _expression(_SECRET_NAME).fullmatch(name) is not None


@lru_cache(maxsize=1_000)  # the arguments of all tools, with room for what callers make up
def _is_secret_word(name: str) -> bool:
    return _expression(_SECRET_NAME).fullmatch(name) is not None


def clip(text: str) -> str:
    """A text short enough to look at, cut where a word ends; of a single endless word only its length."""
    if len(text) <= _LOOKED_AT:
        return text
    head = text[:_LOOKED_AT]
    cut = max(head.rfind(space) for space in " \t\n")
    return head[:cut] + _CUT if cut > 0 else f"<{len(text)} chars>"


def _masked(found: re.Match[str]) -> str:
    kept = found[found.lastindex] if found.lastindex else ""
    return f"{kept}{MASK}"
