"""The verbs, a file per family. Each reads top to bottom: open, ask the engine, show."""
