"""The command line `a44`: arguments in, data on stdout, messages on stderr, a documented exit code."""
