"""Table options: what each is called, how it is read, and which are supported."""
