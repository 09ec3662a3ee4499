"""`/ui`: pages for the person at the server: what agents do, as it happens, and ways to take it back.

`html` builds markup in which every string is text unless this room made it; `layout` is the frame of all pages;
one module per page renders it from the store and the engines; `routes` serves them, checks who may see and do what,
and carries forms to the gate; `live` tells open pages that something changed. No page needs a script, but for
updating itself.
"""
