import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.paimon.catalog.Catalog;
import org.apache.paimon.catalog.CatalogContext;
import org.apache.paimon.catalog.CatalogFactory;
import org.apache.paimon.catalog.Identifier;
import org.apache.paimon.data.BinaryRow;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.disk.IOManager;
import org.apache.paimon.fs.Path;
import org.apache.paimon.fs.local.LocalFileIO;
import org.apache.paimon.index.HashBucketAssigner;
import org.apache.paimon.io.DataFileMeta;
import org.apache.paimon.options.ExpireConfig;
import org.apache.paimon.options.Options;
import org.apache.paimon.reader.RecordReader;
import org.apache.paimon.schema.Schema;
import org.apache.paimon.schema.SchemaChange;
import org.apache.paimon.schema.SchemaManager;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.table.BucketMode;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.FileStoreTableFactory;
import org.apache.paimon.table.sink.BatchTableCommit;
import org.apache.paimon.table.sink.BatchWriteBuilder;
import org.apache.paimon.table.sink.RowKeyExtractor;
import org.apache.paimon.table.sink.TableWriteImpl;
import org.apache.paimon.table.source.DataSplit;
import org.apache.paimon.table.source.ReadBuilder;
import org.apache.paimon.table.source.ScanMode;
import org.apache.paimon.table.source.Split;
import org.apache.paimon.table.source.TableRead;
import org.apache.paimon.types.DataTypeJsonParser;
import org.apache.paimon.predicate.PredicateBuilder;
import org.apache.paimon.types.RowKind;
import org.apache.paimon.types.RowType;
import org.apache.paimon.utils.SerializationUtils;

/** Tables by their directory: made, written, compacted, tagged, expired, rolled back, read. */
final class PaimonTables {
    private PaimonTables() {}

    /** An act of a table writer. */
    private interface Act {
        void accept(FileStoreTable table, TableWriteImpl<?> write) throws Exception;
    }

    static FileStoreTable table(JsonNode request) {
        FileStoreTable table =
                FileStoreTableFactory.create(
                        LocalFileIO.create(), new Path(request.get("path").asText()));
        Map<String, String> options = new HashMap<>();
        if (request.hasNonNull("snapshot")) {
            options.put("scan.snapshot-id", request.get("snapshot").asText());
        }
        if (request.hasNonNull("tag")) {
            options.put("scan.tag-name", request.get("tag").asText());
        }
        return options.isEmpty() ? table : table.copy(options);
    }

    /** Create `name` (database.table) in a catalog of these options; the table's directory. */
    static Object create(JsonNode request) throws Exception {
        Schema.Builder schema = Schema.newBuilder();
        for (JsonNode field : request.get("fields")) {
            schema.column(
                    field.get(0).asText(), DataTypeJsonParser.parseDataType(field.get(1)));
        }
        schema.primaryKey(texts(request.get("keys")));
        schema.partitionKeys(texts(request.get("parts")));
        schema.options(members(request.get("options")));
        String[] name = request.get("name").asText().split("\\.");
        Identifier table = Identifier.create(name[0], name[1]);
        Options options = new Options(members(request.get("catalog")));
        try (Catalog catalog = CatalogFactory.createCatalog(CatalogContext.create(options))) {
            catalog.createDatabase(name[0], true);
            catalog.createTable(table, schema.build(), false);
            return ((FileStoreTable) catalog.getTable(table)).location().toUri().getPath();
        }
    }

    /** The names of tables of a catalog, by database. */
    static Object names(JsonNode request) throws Exception {
        Map<String, List<String>> found = new LinkedHashMap<>();
        Options options = new Options(members(request.get("catalog")));
        try (Catalog catalog = CatalogFactory.createCatalog(CatalogContext.create(options))) {
            for (String database : catalog.listDatabases()) {
                found.put(database, catalog.listTables(database).stream().sorted().toList());
            }
        }
        return found;
    }

    private static List<String> texts(JsonNode list) {
        List<String> found = new ArrayList<>();
        list.forEach(one -> found.add(one.asText()));
        return found;
    }

    private static Map<String, String> members(JsonNode object) {
        Map<String, String> found = new HashMap<>();
        object.fields().forEachRemaining(one -> found.put(one.getKey(), one.getValue().asText()));
        return found;
    }

    private static Object commit(FileStoreTable table, Act act) throws Exception {
        Long before = table.snapshotManager().latestSnapshotId();
        BatchWriteBuilder builder = table.newBatchWriteBuilder();
        try (TableWriteImpl<?> write = (TableWriteImpl<?>) builder.newWrite();
                BatchTableCommit commit = builder.newCommit()) {
            write.withIOManager(IOManager.create(System.getProperty("java.io.tmpdir")));
            act.accept(table, write);
            commit.commit(write.prepareCommit());
        }
        Long after = table.snapshotManager().latestSnapshotId();
        return after == null || after.equals(before) ? null : after;
    }

    /** Write rows, each [kind, values], in one commit; its snapshot id. */
    static Object write(JsonNode request) throws Exception {
        return commit(
                table(request),
                (table, write) -> {
                    HashBucketAssigner assigner = assigner(table);
                    RowKeyExtractor keys = assigner == null ? null : table.createRowKeyExtractor();
                    for (JsonNode one : request.get("rows")) {
                        RowKind kind = RowKind.fromShortString(one.get(0).asText());
                        GenericRow row =
                                PaimonValues.row(
                                        kind, table.rowType().getFieldTypes(), one.get(1));
                        if (assigner == null) {
                            write.write(row);
                            continue;
                        }
                        keys.setRecord(row);
                        int hash = keys.trimmedPrimaryKey().hashCode();
                        write.write(row, assigner.assign(keys.partition().copy(), hash));
                    }
                    if (request.has("full")) {
                        write.compact(BinaryRow.EMPTY_ROW, 0, request.get("full").asBoolean());
                    }
                });
    }

    private static HashBucketAssigner assigner(FileStoreTable table) {
        if (table.bucketMode() != BucketMode.HASH_DYNAMIC) {
            return null;
        }
        return new HashBucketAssigner(
                table.snapshotManager(), "java", table.store().newIndexFileHandler(), 1, 1, 0,
                table.coreOptions().dynamicBucketTargetRowNum(), -1);
    }

    /** Compact each bucket wholly, or as the strategy picks; the snapshot id, or null. */
    static Object compact(JsonNode request) throws Exception {
        FileStoreTable table = table(request).copy(Map.of("write-only", "false"));
        return commit(
                table,
                (one, write) -> {
                    Map<String, DataSplit> buckets = new LinkedHashMap<>();
                    for (DataSplit split : one.newSnapshotReader().read().dataSplits()) {
                        byte[] partition = SerializationUtils.serializeBinaryRow(split.partition());
                        buckets.putIfAbsent(
                                HexFormat.of().formatHex(partition) + split.bucket(), split);
                    }
                    for (DataSplit split : buckets.values()) {
                        write.compact(
                                split.partition(), split.bucket(),
                                request.get("full").asBoolean());
                    }
                });
    }

    static Object read(JsonNode request) throws Exception {
        FileStoreTable table = table(request);
        ReadBuilder builder = table.newReadBuilder();
        if (request.has("equal")) {
            int column = table.rowType().getFieldIndex(request.get("equal").get(0).asText());
            Object value =
                    PaimonValues.value(
                            table.rowType().getTypeAt(column), request.get("equal").get(1));
            builder.withFilter(new PredicateBuilder(table.rowType()).equal(column, value));
        }
        List<Object> answer = new ArrayList<>();
        builder.newRead()
                .executeFilter()
                .createReader(builder.newScan().plan())
                .forEachRemaining(
                        one -> answer.add(PaimonValues.values(table.rowType(), one)));
        return answer;
    }

    /** The rows with those that wait for a bucket. */
    static Object readWaiting(JsonNode request) throws Exception {
        FileStoreTable table = table(request);
        List<Object> answer = new ArrayList<>();
        PaimonRelease.readWaiting(
                table, row -> answer.add(PaimonValues.values(table.rowType(), row)));
        return answer;
    }

    /** One snapshot's changelog files (or, as `delta`, its new data files): [kind, values]. */
    static Object changes(JsonNode request) throws Exception {
        FileStoreTable table = table(request);
        RowType type = table.rowType();
        ScanMode mode = ScanMode.valueOf(request.get("mode").asText());
        List<Split> splits =
                table.newSnapshotReader()
                        .withMode(mode)
                        .withSnapshot(request.get("of").asLong())
                        .read()
                        .splits();
        TableRead read = table.newRead();
        List<Object> answer = new ArrayList<>();
        for (Split split : splits) {
            try (RecordReader<InternalRow> reader = read.createReader(split)) {
                reader.forEachRemaining(
                        one ->
                                answer.add(
                                        List.of(
                                                one.getRowKind().shortString(),
                                                PaimonValues.values(type, one))));
            }
        }
        return answer;
    }

    static Object createTag(JsonNode request) {
        table(request).createTag(request.get("name").asText(), request.get("of").asLong());
        return true;
    }

    static Object createBranch(JsonNode request) {
        table(request).createBranch(request.get("name").asText());
        return true;
    }

    static Object deleteTag(JsonNode request) {
        table(request).deleteTag(request.get("name").asText());
        return true;
    }

    static Object rollback(JsonNode request) {
        table(request).rollbackTo(request.get("to").asLong());
        return true;
    }

    static Object expire(JsonNode request) {
        ExpireConfig config =
                ExpireConfig.builder()
                        .snapshotRetainMax(request.get("max").asInt())
                        .snapshotRetainMin(1)
                        .snapshotTimeRetain(Duration.ofMillis(1))
                        .build();
        return table(request).newExpireSnapshots().config(config).expire();
    }

    static Object alter(JsonNode request) throws Exception {
        Path path = new Path(request.get("path").asText());
        new SchemaManager(LocalFileIO.create(), path).commitChanges(change(request));
        return true;
    }

    private static SchemaChange change(JsonNode request) {
        String name = request.get("name").asText();
        switch (request.get("change").asText()) {
            case "add":
                return SchemaChange.addColumn(
                        name, DataTypeJsonParser.parseDataType(request.get("type")));
            case "type":
                return SchemaChange.updateColumnType(
                        name, DataTypeJsonParser.parseDataType(request.get("type")));
            case "rename":
                return SchemaChange.renameColumn(name, request.get("to").asText());
            case "drop":
                return SchemaChange.dropColumn(name);
            case "option":
                return SchemaChange.setOption(name, request.get("to").asText());
            default:
                throw new IllegalArgumentException("no change " + request);
        }
    }

    /** Live files: [level, rows, deletes, first sequence number, last one]. */
    static Object files(JsonNode request) {
        List<Object> answer = new ArrayList<>();
        for (DataSplit split : table(request).newSnapshotReader().read().dataSplits()) {
            for (DataFileMeta file : split.dataFiles()) {
                answer.add(
                        List.of(
                                file.level(), file.rowCount(), file.deleteRowCount().orElse(-1L),
                                file.minSequenceNumber(), file.maxSequenceNumber()));
            }
        }
        return answer;
    }
}
