"""Floor 6: one small class per kind of metadata file: its path, its contents, how it is published.

May import `io` and every lower floor. Nothing here decides; the plans of floor 4 do. Start reading at
`snapshots`.
"""
