import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.paimon.catalog.Catalog;
import org.apache.paimon.catalog.CatalogContext;
import org.apache.paimon.catalog.CatalogFactory;
import org.apache.paimon.catalog.Identifier;
import org.apache.paimon.data.BinaryRow;
import org.apache.paimon.data.BinaryString;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.options.Options;
import org.apache.paimon.schema.Schema;
import org.apache.paimon.schema.SchemaChange;
import org.apache.paimon.table.Table;
import org.apache.paimon.table.sink.BatchTableCommit;
import org.apache.paimon.table.sink.BatchTableWrite;
import org.apache.paimon.table.sink.BatchWriteBuilder;
import org.apache.paimon.table.source.ReadBuilder;
import org.apache.paimon.types.DataTypes;

/** Java Paimon through a REST catalog: PaimonRest URI TOKEN create|write|compact|read|drop TABLE [VALUE]; columns k, v. */
public class PaimonRest {
    public static void main(String[] args) throws Exception {
        Options options = new Options();
        options.set("metastore", "rest");
        options.set("uri", args[0]);
        options.set("warehouse", "lake");
        options.set("token.provider", "bear");
        options.set("token", args[1]);
        Identifier name = Identifier.fromString(args[3]);
        try (Catalog catalog = CatalogFactory.createCatalog(CatalogContext.create(options))) {
            for (String verb : args[2].split(",")) {
                System.out.println(verb + " " + run(catalog, name, verb, args.length > 4 ? args[4] : ""));
            }
        }
    }

    private static Object run(Catalog catalog, Identifier name, String verb, String value) throws Exception {
        switch (verb) {
            case "create":
                catalog.createDatabase(name.getDatabaseName(), true);
                Schema schema =
                        Schema.newBuilder()
                                .column("k", DataTypes.BIGINT().notNull())
                                .column("v", DataTypes.STRING())
                                .primaryKey("k")
                                .option("bucket", "1")
                                .build();
                catalog.createTable(name, schema, false);
                return catalog.listTables(name.getDatabaseName());
            case "alter":
                catalog.alterTable(name, List.of(SchemaChange.addColumn("w", DataTypes.INT())), false);
                return catalog.getTable(name).rowType().getFieldNames();
            case "write":
            case "compact":
                write(catalog.getTable(name), value, verb.equals("compact"));
                return "";
            case "tag":
                catalog.createTag(name, value, null, null, false);
                return catalog.getTag(name, value).snapshot().id();
            case "read":
                return rows(catalog.getTable(name));
            case "drop":
                catalog.dropTable(name, false);
                return catalog.listTables(name.getDatabaseName());
            default:
                throw new IllegalArgumentException(verb);
        }
    }

    private static Map<Long, String> rows(Table table) throws Exception {
        ReadBuilder builder = table.newReadBuilder();
        TreeMap<Long, String> rows = new TreeMap<>();
        builder.newRead()
                .createReader(builder.newScan().plan())
                .forEachRemaining(row -> rows.put(row.getLong(0), row.getString(1).toString()));
        return rows;
    }

    private static void write(Table table, String value, boolean compacts) throws Exception {
        BatchWriteBuilder builder = table.newBatchWriteBuilder();
        org.apache.paimon.disk.IOManager spill =
                org.apache.paimon.disk.IOManager.create(System.getProperty("java.io.tmpdir"));
        try (BatchTableWrite write = (BatchTableWrite) builder.newWrite().withIOManager(spill);
                BatchTableCommit commit = builder.newCommit()) {
            if (compacts) {
                write.compact(BinaryRow.EMPTY_ROW, 0, true);
            } else {
                for (long key = 0; key < 3; key++) {
                    GenericRow row = new GenericRow(table.rowType().getFieldCount());
                    row.setField(0, key);
                    row.setField(1, BinaryString.fromString(value));
                    write.write(row);
                }
            }
            commit.commit(write.prepareCommit());
        }
    }
}
