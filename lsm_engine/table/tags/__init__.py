"""What pins files: tags, branches, and the roots that maintenance must not pull out."""
