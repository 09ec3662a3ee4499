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
    ("tests", ("pytest",), ("py.test", "python", "python3", "cargo", "go", "npm", "yarn", "pnpm")),
    ("text", ("cat", "head", "tail"), ()),
)

FAMILY_OF = {program: family for family, wrapped, others in _FAMILIES for program in (*wrapped, *others)}
WRAPPED = tuple(program for _, wrapped, _ in _FAMILIES for program in wrapped)
