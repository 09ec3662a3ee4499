"""Command lines: a command declares its arguments once, and is parsed, explained and completed from that declaration.

    @declare("locks", "Lists the files that are locked.", flags=(JSON,))
    def locks(given: Arguments) -> int:
        ...

`locks` is then a `Command`: called with the words of a command line, it parses them and runs the function. Not
argparse: importing it takes longer than most of our commands take to run.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from .errors import InvalidArgument

if TYPE_CHECKING:
    from .config.load import Flags

_HELP = ("-h", "--help")
_WIDTH = 120
_CHOICES_SHOWN = 40  # characters; longer lists of choices stand in the help only


class Flag(NamedTuple):
    """A flag. `value` names its value in help texts; a flag without one is a switch."""

    name: str
    help: str
    value: str = ""
    choices: Sequence[str] = ()
    default: str = ""
    repeated: bool = False

    @property
    def form(self) -> str:
        """The flag and its value: `--limit N`."""
        return f"{self.name} {_choices(self.choices) or self.value}" if self.value else self.name


class Positional(NamedTuple):
    """An argument without a flag."""

    name: str
    help: str
    choices: Sequence[str] = ()
    required: bool = True
    repeated: bool = False

    @property
    def form(self) -> str:
        """As a synopsis shows it."""
        name = (_choices(self.choices) or self.name) + ("…" if self.repeated else "")
        return name if self.required else f"[{name}]"


JSON = Flag("--json", "print JSON")


def _choices(choices: Sequence[str]) -> str:
    listed = "|".join(choices)
    return listed if len(listed) <= _CHOICES_SHOWN else ""


class UsageError(InvalidArgument):
    """A command line that its command does not accept."""


class _HelpRequested(Exception):
    """The command line contains --help."""


class Arguments:
    """A parsed command line."""

    def __init__(self, flags: Sequence[Flag]) -> None:
        self.positionals: list[str] = []
        self.rest: list[str] = []  # what follows `--`, or everything where the command does not parse
        self.server: Flags | None = None
        self._values: dict[str, list[str]] = {}
        self._defaults = {flag.name: flag.default for flag in flags}

    def __contains__(self, flag: str) -> bool:
        return flag in self._values

    def add(self, flag: Flag, value: str) -> None:
        """Record a flag."""
        if flag.choices and value not in flag.choices:
            raise UsageError(f"{flag.name}: {value!r} is none of {', '.join(flag.choices)}")
        self._values.setdefault(flag.name, []).append(value)

    def first(self) -> str | None:
        """The first positional argument."""
        return self.positionals[0] if self.positionals else None

    def all(self, flag: str) -> list[str]:
        """Every value of a flag that may be given several times."""
        return self._values.get(flag, [])

    def value(self, flag: str) -> str:
        """The last value of a flag, else its default."""
        return self._values.get(flag, [self._defaults[flag]])[-1]

    def number(self, flag: str, *, least: int = 1, most: int = sys.maxsize) -> int:
        """A flag's value as a number."""
        value = self.value(flag)
        if not value.isdecimal() or not least <= int(value) <= most:
            limits = f"from {least} on" if most == sys.maxsize else f"from {least} to {most:,}"
            raise UsageError(f"{flag} takes a number {limits}, not {value!r}")
        return int(value)


Handler: TypeAlias = Callable[[Arguments], int]


class Command:
    """A command: its arguments, and the function that runs it.

    `server_flags`: it takes the flags of llmc-mcp, too. `rest` is what may follow `--`. `dashed_words`: positional
    arguments may begin with one dash. `parsed=False`: the function gets all words, --help included, as they are.
    `default`: the subcommand that runs where none is named. `confused_with`: a hint at another command, for words that
    this one does not know.
    """

    def __init__(  # noqa: PLR0913 - all of a command line, each part by its name
        self,
        name: str,
        about: str,
        run: Handler | None = None,
        *,
        program: str = "llmc",
        positionals: Sequence[Positional] = (),
        flags: Sequence[Flag] = (),
        server_flags: bool = False,
        rest: Positional | None = None,
        dashed_words: bool = False,
        parsed: bool = True,
        default: str = "",
        confused_with: str = "",
    ) -> None:
        self.name, self.about, self.run, self.default = name, about, run, default
        self._confused_with = confused_with
        self.full_name = f"{program} {name}".strip()
        self.positionals, self.flags = tuple(positionals), tuple(flags)
        self.verbs: dict[str, Command] = {}
        self._server_flags, self._rest = server_flags, rest
        self._dashed_words, self._parsed = dashed_words, parsed

    def verb(
        self,
        name: str,
        about: str,
        *,
        positionals: Sequence[Positional] = (),
        flags: Sequence[Flag] = (),
        server_flags: bool = False,
        parsed: bool = True,
    ) -> Callable[[Handler], Handler]:
        """Declare a subcommand that the decorated function runs; without `about`, one that help texts leave out."""

        def wrap(run: Handler) -> Handler:
            self.verbs[name] = Command(
                name,
                about,
                run,
                program=self.full_name,
                positionals=positionals,
                flags=flags,
                server_flags=server_flags,
                parsed=parsed,
            )
            return run

        return wrap

    def all_flags(self) -> tuple[Flag, ...]:
        """Its own flags and, where it takes them, the server's."""
        flags = self.verbs[self.default].flags if self.default else self.flags
        return (*flags, *(server_flags() if self._server_flags else ()))

    def first_words(self) -> list[str]:
        """What may follow the command's name, besides values that only the person knows."""
        choices = [choice for positional in self.positionals for choice in positional.choices]
        return [*self.verbs, *choices, *(flag.name for flag in self.all_flags()), "--help"]

    # --- running -------------------------------------------------------------------------------------

    def __call__(self, words: Sequence[str]) -> int:
        """Run a command line; a wrong one is explained on stderr, the usage first, and ends with 2."""
        try:
            return self.dispatch(words)
        except UsageError as exc:
            from .visible import visible

            program = self.full_name.partition(" ")[0]
            hint = f"hint: {visible(exc.hint)}\n" if exc.hint else ""
            print(f"{self.synopsis()}{program}: {visible(exc.message)}\n{hint}", end="", file=sys.stderr)
            return 2

    def dispatch(self, words: Sequence[str]) -> int:
        """Run a command line; raises UsageError for a wrong one."""
        try:
            return self._dispatch(words)
        except _HelpRequested:
            print(self.help(), end="")
            return 0

    def _dispatch(self, words: Sequence[str]) -> int:
        if words and words[0] in self.verbs:
            return self.verbs[words[0]]._dispatch(words[1:])
        if self.default:
            verb = self.verbs[self.default]
            if words and not words[0].startswith("-") and not verb.positionals:
                raise unknown_argument(words[0], list(self.verbs))
            return verb._dispatch(words)
        if self.run is not None:
            return self.run(self.parse(words))
        if not words or words[0] in (*_HELP, "help"):
            raise _HelpRequested
        raise unknown_argument(words[0], list(self.verbs), self._confused_with)

    def parse(self, words: Sequence[str]) -> Arguments:
        """The words by their meaning."""
        given = Arguments(self.flags)
        if not self._parsed:
            given.rest += words
            return given
        if self._server_flags:
            from .config.load import parse_flags

            given.server, words = parse_flags(words)
        self._read(list(words), given)
        self._check_positionals(given.positionals)
        return given

    def _read(self, words: list[str], given: Arguments) -> None:
        known = {flag.name: flag for flag in self.flags}
        while words:
            word = words.pop(0)
            if word == "--":
                (given.rest if self._rest else given.positionals).extend(words)
                return
            name, equals, value = word.partition("=")
            flag = known.get(name)
            if flag is not None and (flag.value or not equals):
                if flag.value and not equals:
                    if not words:
                        raise UsageError(f"{name} needs a value")
                    value = words.pop(0)
                given.add(flag, value)
            elif word in _HELP:
                raise _HelpRequested
            elif word.startswith("--") or (word.startswith("-") and word != "-" and not self._dashed_words):
                raise unknown_argument(word, [one.name for one in self.all_flags()])
            else:
                given.positionals.append(word)

    def _check_positionals(self, words: list[str]) -> None:
        required = [one for one in self.positionals if one.required]
        if len(words) < len(required):
            raise UsageError(f"{required[len(words)].name} is missing")
        for number, word in enumerate(words):
            positional = self._positional(number)
            if positional is None:
                raise unknown_argument(word, list(self.verbs))
            if positional.choices and word not in positional.choices:
                raise UsageError(
                    f"no {positional.name.lower()} is called {word!r}", hint=_nearest(word, positional.choices)
                )

    def _positional(self, number: int) -> Positional | None:
        if number < len(self.positionals):
            return self.positionals[number]
        return self.positionals[-1] if self.positionals and self.positionals[-1].repeated else None

    # --- help ----------------------------------------------------------------------------------------

    def help(self) -> str:
        """What --help prints."""
        return f"{self.synopsis()}\n{_filled(self.about)}{_table(list(self._rows()))}"

    def synopsis(self) -> str:
        """One line for every form of the command."""
        has_own_form = self.run is not None or self.positionals or not self.verbs
        commands = [*([self] if has_own_form else []), *self._shown_verbs()]
        lines = [line for one in commands for line in one._form(optional=one.name == self.default != "")]
        return "".join(f"{'       ' if number else 'usage: '}{line}\n" for number, line in enumerate(lines))

    def _shown_verbs(self) -> "list[Command]":
        return [verb for verb in self.verbs.values() if verb.about]

    def _form(self, *, optional: bool) -> Iterator[str]:
        flags = [f"[{flag.form}]{'…' if flag.repeated else ''}" for flag in self.flags]
        positionals = [one.form for one in self.positionals]
        open_ended = bool(self.positionals) and self.positionals[-1].repeated
        parts = [*flags, *positionals] if open_ended else [*positionals, *flags]
        parts += ["[SERVER FLAGS]"] if self._server_flags else []
        parts += [f"[-- {self._rest.name}]"] if self._rest else []
        line, indent = self.full_name, " " * len(self.full_name)
        if optional:
            line = f"{self.full_name.removesuffix(self.name)}[{self.name}]"
        for part in parts:
            if len(line) + len(part) + 8 > _WIDTH:
                yield line
                line = indent
            line += f" {part}"
        yield line

    def _rows(self) -> Iterator[tuple[str, str]]:
        """What the help says about each part, every part once."""
        yield from ((verb.name, verb.about) for verb in self._shown_verbs())
        commands = (self, *self._shown_verbs())
        described: dict[str, str] = {}
        for positional in (one for command in commands for one in command.positionals if one.help):
            described.setdefault(positional.name, positional.help)
        for flag in (one for command in commands for one in command.flags):
            described.setdefault(f"{flag.name} {flag.value}".strip(), _described(flag))
        yield from described.items()
        if self._rest is not None:
            yield f"-- {self._rest.name}", self._rest.help
        if any(command._server_flags for command in commands):
            yield "SERVER FLAGS", "the flags of llmc-mcp, such as --root DIR and --config FILE: see llmc serve --help"


def declare(
    name: str,
    about: str,
    *,
    positionals: Sequence[Positional] = (),
    flags: Sequence[Flag] = (),
    server_flags: bool = False,
    rest: Positional | None = None,
    dashed_words: bool = False,
    parsed: bool = True,
) -> Callable[[Handler], Command]:
    """Declare a command of `llmc` that the decorated function runs."""

    def wrap(run: Handler) -> Command:
        return Command(
            name,
            about,
            run,
            positionals=positionals,
            flags=flags,
            server_flags=server_flags,
            rest=rest,
            dashed_words=dashed_words,
            parsed=parsed,
        )

    return wrap


def server_flags() -> tuple[Flag, ...]:
    """The flags of llmc-mcp, as its own parser declares them; choices are those of the settings."""
    from .config.load import SERVER_FLAGS
    from .config.schema import find_key

    keys = {flag.name: find_key(flag.setting) for flag in SERVER_FLAGS if flag.setting}
    return tuple(
        Flag(
            flag.name,
            flag.help,
            flag.value,
            choices=key.choices if (key := keys.get(flag.name)) else (),
            repeated=flag.repeated,
        )
        for flag in SERVER_FLAGS
    )


def near(word: str, choices: Sequence[str]) -> str:
    """The choice that was probably meant, as a question; empty if none is similar."""
    import difflib

    found = difflib.get_close_matches(word.partition("=")[0], choices, 1)
    return f"Did you mean {found[0]}?" if found else ""


def _nearest(word: str, choices: Sequence[str]) -> str:
    return near(word, choices) or f"Known are {', '.join(choices)}."


def unknown_argument(word: str, choices: Sequence[str], otherwise: str = "") -> UsageError:
    """The error for a word that means nothing, with the one that was probably meant, else another hint."""
    return UsageError(f"unknown argument {word!r}", hint=near(word, choices) or otherwise or None)


def _described(flag: Flag) -> str:
    text = f"{flag.help}; may be given several times" if flag.repeated else flag.help
    return f"{text} (default: {flag.default})" if flag.default else text


def _filled(text: str) -> str:
    """Paragraphs filled to the width; what is indented stays as it is."""
    import textwrap

    paragraphs = text.strip("\n").split("\n\n")
    return "\n\n".join(one if one.startswith(" ") else textwrap.fill(one, _WIDTH) for one in paragraphs) + "\n"


def _table(rows: list[tuple[str, str]]) -> str:
    import textwrap

    if not rows:
        return ""
    indent = max(len(left) for left, _ in rows) + 4
    lines = [
        textwrap.fill(
            text,
            _WIDTH,
            initial_indent=f"  {left}".ljust(indent),
            subsequent_indent=" " * indent,
            break_on_hyphens=False,
        )
        for left, text in rows
    ]
    return "\n" + "\n".join(lines) + "\n"
