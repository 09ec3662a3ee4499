"""What the roots look like, and what changed since the last look: so that what commands do can be undone.

`entries` is what is known of a file; `tree` compares one root with how it looked before, by names that `watch`
(inotify) reports or by a walk; `sources` says where a file's content can be had again: in git's objects (`git_index`,
`git_objects`) or in a copy of our own (`spool`). `tracker` holds the trees of all roots and says which changes came
while which command ran; `commits` says what was committed since.

`changes/` makes journal entries of it. Nothing here writes below a root.
"""
