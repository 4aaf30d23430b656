"""What means "the user's input or machine is wrong", as opposed to a defect of ours."""


class UserError(ValueError):
    """Bad input: the message is one line that names the thing and says what would be valid.

    The command line prints it to stderr without a traceback and exits with status 2.
    """


class Unfinished(UserError):
    """What was done so far is whole, and the same command goes on from there: status 69."""
