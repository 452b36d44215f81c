"""The Avro object container, and the decoder of its records."""
