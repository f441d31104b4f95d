"""The ``fedsim`` command: the only place that prints.

Results go to standard output, progress and errors to standard error. Both are formatted where they are a
terminal, and plain lines where they are not. :mod:`fedsim.cli.main_command` declares the commands and their
options; the module that does a command's work is imported when the command is run.

=== ================================================================
0   all went well
1   a run failed, or a bug in fedsim (then with a traceback)
2   a mistake of the user's: the message says how to mend it
130 interrupted from the keyboard; 143 terminated. Nothing is left half-written
=== ================================================================
"""

from fedsim.cli.main_command import main

__all__ = ["main"]
