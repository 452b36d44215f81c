"""The command `lsm serve`: the REST protocols of Paimon and of Iceberg over a catalog, and its pages."""
