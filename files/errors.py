"""The error that every mistake of a user's raises."""


class HeadcountError(ValueError):
    """What was given, what is allowed, what to do, in one line. Any other ValueError is a fault of Headcount's."""

    exit_code = 2
