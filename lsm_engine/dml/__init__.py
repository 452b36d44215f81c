"""Operations that change rows: upsert, append, insert, update, delete, overwrite, merge."""
