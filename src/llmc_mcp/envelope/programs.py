"""The programs whose output is understood: the only list of them.

`te` reads this at every start, so nothing is imported here. A family is the module of that name in this folder; its
`plan(argv)` decides whether it understands the flags as well.
"""

# Family, programs that `te init` wraps in an agent's shell, programs that are recognised only after an explicit `te`.
# The latter mostly do something else than run tests, and are then better left alone.
_FAMILIES = (
    ("grep", ("grep", "egrep", "fgrep", "rg"), ()),
    ("paths", ("find", "fd", "ls"), ("fdfind",)),
    ("git", ("git",), ()),
    ("tests", ("pytest",), ("py.test",)),
    ("text", ("cat", "head", "tail"), ("sed", "nl", "awk", "gawk", "mawk")),
    ("scripts", (), ("python", "python3", "pypy3", "node", "ruby", "perl", "make", "cmake", "ninja")),
    ("scripts", (), ("gcc", "g++", "clang", "cc", "pip", "pip3", "uv", "poetry", "mvn", "gradle", "tox", "nox")),
    ("scripts", (), ("sphinx-build", "mkdocs", "webpack", "vite")),
    ("lint", (), ("ruff", "flake8", "pylint", "mypy", "pyright", "basedpyright", "eslint", "tsc", "shellcheck")),
    ("logs", (), ("docker", "podman", "kubectl", "journalctl")),
    ("runners", (), ("cargo", "go", "npm", "yarn", "pnpm")),
)

FAMILY_OF = {program: family for family, wrapped, others in _FAMILIES for program in (*wrapped, *others)}
WRAPPED = tuple(program for _, wrapped, _ in _FAMILIES for program in wrapped)
_SCRIPTS = (".py", ".sh", ".bash", ".js", ".mjs", ".rb", ".pl")


def is_script(program: str) -> bool:
    """Whether a command is a script by its name."""
    return program.endswith(_SCRIPTS)
