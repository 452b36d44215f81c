"""Floor 1½: what we know about files. Facts, never handles.

Every class here is a frozen record; change means a copy. Start reading at `data_file`.
"""
