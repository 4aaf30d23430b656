"""The one exception that means "the user's input is wrong", as opposed to a defect of ours."""


class UserError(ValueError):
    """Bad input: the message is one line that names the thing and says what would be valid.

    The command line prints it to stderr without a traceback and exits with status 2.
    """
