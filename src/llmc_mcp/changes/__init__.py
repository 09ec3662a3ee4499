"""Changing files below the roots so that nothing is lost.

`transaction` takes leases, writes the intent, publishes the change and recovers what a crash left; `steps` are the
atomic steps it is made of, `records` what is stored of them and `targets` the directories and names they act on;
`journal` keeps pre-images and rows;
`operations` plans write, edit, move and delete; `edit` and `near_miss` replace text or say why it did not match;
`diff_parse`, `diff`, `diff_lines` and `patches` parse, make and apply diffs; `commands` journals what commands did, and
`tree` is the step for their many entries; `undo` and `undo_tree` take changes back, `effects` says what they did.

Tools call in through `operations`, `patches`, `commands` and `undo`. Nothing else in the package writes below a root.
"""
