import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import java.util.TreeMap;
import org.apache.paimon.catalog.Catalog;
import org.apache.paimon.catalog.CatalogContext;
import org.apache.paimon.catalog.CatalogFactory;
import org.apache.paimon.catalog.Identifier;
import org.apache.paimon.data.BinaryString;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.options.Options;
import org.apache.paimon.schema.Schema;
import org.apache.paimon.table.Table;
import org.apache.paimon.table.sink.BatchTableCommit;
import org.apache.paimon.table.sink.BatchTableWrite;
import org.apache.paimon.table.sink.BatchWriteBuilder;
import org.apache.paimon.table.source.ReadBuilder;
import org.apache.paimon.types.DataTypes;

/** Java Paimon on an object store: PaimonStore OPTIONS read|write DATABASE TABLE [TAG]; columns k, v. */
public class PaimonStore {
    public static void main(String[] args) throws Exception {
        Options options = new Options();
        JsonNode given = new ObjectMapper().readTree(args[0]);
        given.fields().forEachRemaining(one -> options.set(one.getKey(), one.getValue().asText()));
        Identifier name = Identifier.create(args[2], args[3]);
        try (Catalog catalog = CatalogFactory.createCatalog(CatalogContext.create(options))) {
            if (args[1].equals("write")) {
                write(catalog, name);
                return;
            }
            Table table = catalog.getTable(name);
            if (args.length > 4) {
                table = table.copy(java.util.Map.of("scan.tag-name", args[4]));
            }
            ReadBuilder builder = table.newReadBuilder();
            TreeMap<Long, String> rows = new TreeMap<>();
            builder.newRead()
                    .createReader(builder.newScan().plan())
                    .forEachRemaining(row -> rows.put(row.getLong(0), row.getString(1).toString()));
            System.out.println("ROWS " + new ObjectMapper().writeValueAsString(rows));
        }
    }

    private static void write(Catalog catalog, Identifier name) throws Exception {
        catalog.createDatabase(name.getDatabaseName(), true);
        Schema schema =
                Schema.newBuilder()
                        .column("k", DataTypes.BIGINT().notNull())
                        .column("v", DataTypes.STRING())
                        .primaryKey("k")
                        .option("bucket", "1")
                        .build();
        catalog.createTable(name, schema, false);
        for (int turn = 0; turn < 3; turn++) {
            BatchWriteBuilder builder = catalog.getTable(name).newBatchWriteBuilder();
            try (BatchTableWrite write = builder.newWrite();
                    BatchTableCommit commit = builder.newCommit()) {
                for (long key = 0; key < 100 + turn; key++) {
                    write.write(GenericRow.of(key, BinaryString.fromString("java-" + turn)));
                }
                commit.commit(write.prepareCommit());
            }
        }
    }
}
