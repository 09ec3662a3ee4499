"""What confines a command.

`profile` turns settings into folders, users and limits; `levels` makes a bubblewrap or Landlock launch of them;
`selftest` runs `probe` inside a level and reports what got out; `sandbox` chooses a level that held; `git_identity`
gives commits inside the user's name.

Commands and interpreters call `Sandbox.start`. Which programs may run is not decided here (`commands.allowlist`).
"""
