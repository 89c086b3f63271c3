"""The command line: one module per command, each thin: parse, call the library, print. Nothing else imports this.

main.py builds the parser and turns errors into exit codes; common.py holds what several commands share. Nothing heavy
is imported before a command needs it.
"""

__all__ = []
