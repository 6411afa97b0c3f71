"""Python workflows as they are published: read from their syntax tree, never imported or run."""
