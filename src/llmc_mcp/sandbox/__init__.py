"""What confines a command.

`profile` turns settings into folders, users and limits; `cover_check` notices when what has to be covered inside the
roots is another; `levels` makes a bubblewrap or Landlock launch of them; `machines` holds what commands of a session
share; `selftest` runs `probe` inside a level and reports what got out; `sandbox` chooses a level that held;
`git_identity` gives commits inside the user's name.

Commands and interpreters call `Sandbox.start`. Which programs may run is not decided here (`commands.allowlist`).
"""
