"""Floor 2: bytes ⇄ facts. Bytes in, records or Arrow columns out, and back; no file is opened here.

May import `base`, `schema` and `meta`, the array libraries and decoders of bytes. Whatever the bytes
hold, the answer is the right value or an error that names the file. Start reading at `binary_row`,
then `avro` and `manifest`.
"""
