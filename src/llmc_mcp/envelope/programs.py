"""Which programs' output is understood, and by which family.

`te` reads this at every start, so nothing is imported here. A family is the module of that name in this folder; its
`plan(argv)` says whether it understands these flags, too.
"""

FAMILY_OF = {
    **dict.fromkeys(("grep", "egrep", "fgrep", "rg"), "grep"),
    **dict.fromkeys(("cat", "head", "tail"), "text"),
    **dict.fromkeys(("find", "fd", "fdfind", "ls"), "paths"),
    "git": "git",
    **dict.fromkeys(("pytest", "py.test", "python", "python3", "cargo", "go", "npm", "yarn", "pnpm"), "tests"),
}
