"""The Linux kernel and the processes we start: system calls, confinement, children.

`syscalls` holds all ctypes; `landlock` and `seccomp` make rule sets and filters; `launcher_process` starts
every child, `launcher` is the server's end of it; `child` drains one child; `limits` bounds it, `memory` measures it,
`scratch` removes folders that a child may have booby-trapped.

Engines call in. Nothing here knows a tool, a root or a setting; `launcher_process` and `syscalls` need only the
standard library.
"""
