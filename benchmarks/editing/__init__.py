"""Edits as agents made them, expressed in each dialect; edits beside a concurrent writer; renames, judged."""
