"""Programs that an agent runs: to their end, or in a terminal session.

`allowlist` decides which may start; `runner` runs one and keeps what it prints; `pytest` reads its report;
`sessions` keeps programs on a pty, each a `conversation` of typed input and cleaned output (`terminal`), pumped by
one thread (`pump`); `input_wait` asks the kernel whether one waits for input; `git_log` asks git for a file's last
commit.

Everything starts through `sandbox`; nothing here opens a file below a root but through `files`.
"""
