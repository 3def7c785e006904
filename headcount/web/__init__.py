"""The page in the browser: the same questions, options and reports as on the command line; needs the extra `web`."""
