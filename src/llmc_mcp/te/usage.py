"""What `te --help` prints."""

USAGE = """\
usage: te [--json] [--raw] COMMAND [ARGS...]    run a command; for an agent, with its output enriched
       te --handle ID [--chunk N | --grep P]    what an earlier reply left out
       te --list-handles                        what can be asked for that way
       te --stats [--json]                      commands, agents, what was slow, what was saved
       te init bash|zsh|fish                    wrappers for an agent's shell: eval "$(te init bash)"
       te -- COMMAND                            where a command is called like one of the above
"""
