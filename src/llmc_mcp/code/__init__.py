"""Edits by symbol and by pattern, and checks of the result.

parser    the process that reads code, and the server's end of it
bodies    replace, insert, delete a definition: where it is in the file as it is now
rename    every certain place of a name, and the doubtful ones to look at
families  the definitions that have to keep one name, and names that are not the project's
rewrite   patterns over files
check     syntax errors and the findings of linters that are new since a commit
baseline  what a project was at that commit, or when a session began
linters   which linters and type checkers a project has, and how their output is read
"""
