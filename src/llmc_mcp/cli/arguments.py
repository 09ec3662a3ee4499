"""A command line taken apart. Not argparse: importing it takes longer than most of our commands take to run."""

from collections.abc import Sequence

from ..errors import InvalidArgument


class ParsedArguments:
    """Flags that were given, one value a flag, and what is left; `free`: what is left may begin with a dash."""

    def __init__(
        self,
        arguments: Sequence[str],
        usage: str,
        flags: Sequence[str],
        valued: Sequence[str] = (),
        *,
        free: bool = False,
    ) -> None:
        self.given: set[str] = set()
        self.values: dict[str, str] = {}
        self.left: list[str] = []
        rest = list(arguments)
        while rest:
            word = rest.pop(0)
            if word in ("-h", "--help"):
                print(usage, end="")
                raise SystemExit(0)
            if word == "--" and free:
                self.left += rest
                break
            if word in flags:
                self.given.add(word)
            elif word in valued and rest:
                self.values[word] = rest.pop(0)
            elif word.startswith("--" if free else "-"):
                raise InvalidArgument(f"unknown argument {word!r}\n{usage}")
            else:
                self.left.append(word)

    def number(self, name: str, default: int) -> int:
        value = self.values.get(name, str(default))
        if not value.isdecimal() or not int(value):
            raise InvalidArgument(f"{name} takes a number from 1 on, not {value!r}")
        return int(value)
