"""Floor 5: bytes at rest. Clocks, ids, files, and the formats of data files.

Time, randomness and the disk enter the house here. May import every lower floor. Start reading at
`file_io`.
"""
