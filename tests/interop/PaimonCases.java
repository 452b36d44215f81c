import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.paimon.CoreOptions;
import org.apache.paimon.compact.CompactUnit;
import org.apache.paimon.data.BinaryRow;
import org.apache.paimon.data.BinaryString;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.data.serializer.InternalRowSerializer;
import org.apache.paimon.disk.IOManager;
import org.apache.paimon.fs.Path;
import org.apache.paimon.fs.local.LocalFileIO;
import org.apache.paimon.iceberg.IcebergOptions;
import org.apache.paimon.io.DataFileMeta;
import org.apache.paimon.manifest.FileSource;
import org.apache.paimon.mergetree.LevelSortedRun;
import org.apache.paimon.mergetree.SortedRun;
import org.apache.paimon.mergetree.compact.IntervalPartition;
import org.apache.paimon.mergetree.compact.UniversalCompaction;
import org.apache.paimon.options.ConfigOption;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.paimon.stats.SimpleStats;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.FileStoreTableFactory;
import org.apache.paimon.table.sink.BatchTableCommit;
import org.apache.paimon.table.sink.BatchTableWrite;
import org.apache.paimon.table.sink.BatchWriteBuilder;
import org.apache.paimon.table.source.ReadBuilder;
import org.apache.paimon.types.DataType;
import org.apache.paimon.types.DataTypeJsonParser;
import org.apache.paimon.types.RowKind;
import org.apache.paimon.types.RowType;
import org.apache.paimon.utils.InternalRowPartitionComputer;

/** Asks the newest Java Paimon: one JSON request per line in, one JSON answer per line out. */
public class PaimonCases {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader requests =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            Map<String, Object> answer = new LinkedHashMap<>();
            try {
                answer.put("answer", answered(JSON.readTree(line)));
            } catch (Throwable failure) {
                answer.put("error", failure.toString());
            }
            System.out.println(JSON.writeValueAsString(answer));
            System.out.flush();
        }
    }

    private static Object answered(JsonNode request) throws Exception {
        switch (request.get("op").asText()) {
            case "options":
                return options();
            case "rows":
                return rows(request);
            case "partitions":
                return partitions(request);
            case "pick":
                return pick(request);
            case "sections":
                return sections(request);
            case "write":
                return write(request);
            case "read":
                return read(request);
            default:
                return RowIdCases.answered(table(request), request);
        }
    }

    private static Object options() throws Exception {
        TreeSet<String> keys = new TreeSet<>();
        for (Class<?> holder : new Class<?>[] {CoreOptions.class, IcebergOptions.class}) {
            for (Field field : holder.getDeclaredFields()) {
                if (Modifier.isStatic(field.getModifiers())
                        && field.getType() == ConfigOption.class) {
                    field.setAccessible(true);
                    keys.add(((ConfigOption<?>) field.get(null)).key());
                }
            }
        }
        return keys;
    }

    private static Object rows(JsonNode request) {
        List<DataType> types = new ArrayList<>();
        request.get("types").forEach(one -> types.add(DataTypeJsonParser.parseDataType(one)));
        InternalRowSerializer serializer =
                new InternalRowSerializer(types.toArray(new DataType[0]));
        List<Object> answer = new ArrayList<>();
        for (JsonNode values : request.get("rows")) {
            BinaryRow row = serializer.toBinaryRow(row(RowKind.INSERT, types, values));
            StringBuilder hex = new StringBuilder();
            for (byte one : row.toBytes()) {
                hex.append(String.format("%02x", one));
            }
            answer.add(List.of(hex.toString(), row.hashCode()));
        }
        return answer;
    }

    /** The text of each value of one partition column. */
    private static Object partitions(JsonNode request) {
        DataType type = DataTypeJsonParser.parseDataType(request.get("type"));
        RowType partition = RowType.of(new DataType[] {type}, new String[] {"p"});
        InternalRowPartitionComputer computer =
                new InternalRowPartitionComputer(
                        "none", partition, new String[] {"p"}, request.get("legacy").asBoolean());
        List<String> answer = new ArrayList<>();
        for (JsonNode one : request.get("values")) {
            GenericRow row = GenericRow.of(value(type, one));
            answer.add(computer.generatePartValues(row).get("p"));
        }
        return answer;
    }

    static GenericRow row(RowKind kind, List<DataType> types, JsonNode values) {
        GenericRow row = new GenericRow(kind, types.size());
        for (int at = 0; at < types.size(); at++) {
            row.setField(at, value(types.get(at), values.get(at)));
        }
        return row;
    }

    static Object value(DataType type, JsonNode node) {
        if (node == null || node.isNull()) {
            return null;
        }
        switch (type.getTypeRoot()) {
            case BOOLEAN:
                return node.asBoolean();
            case TINYINT:
                return (byte) node.asInt();
            case SMALLINT:
                return (short) node.asInt();
            case INTEGER:
            case DATE:
            case TIME_WITHOUT_TIME_ZONE:
                return node.asInt();
            case BIGINT:
                return node.asLong();
            case FLOAT:
                return (float) node.asDouble();
            case DOUBLE:
                return node.asDouble();
            case VARCHAR:
            case CHAR:
                return BinaryString.fromString(node.asText());
            default:
                throw new IllegalArgumentException("no JSON for " + type);
        }
    }

    /** A file is [name, size, first key, last key, first sequence number, last one, level]. */
    private static DataFileMeta file(JsonNode facts) {
        return DataFileMeta.create(
                facts.get(0).asText(), facts.get(1).asLong(), 1L, key(facts.get(2)),
                key(facts.get(3)), SimpleStats.EMPTY_STATS, SimpleStats.EMPTY_STATS,
                facts.get(4).asLong(), facts.get(5).asLong(), 0L, facts.get(6).asInt(), 0L, null,
                FileSource.APPEND, null, null, null);
    }

    private static BinaryRow key(JsonNode value) {
        return BinaryRow.singleColumn(value.asInt());
    }

    private static List<String> names(List<DataFileMeta> files) {
        List<String> names = new ArrayList<>();
        files.forEach(one -> names.add(one.fileName()));
        return names;
    }

    private static Object pick(JsonNode request) {
        List<LevelSortedRun> runs = new ArrayList<>();
        for (JsonNode facts : request.get("runs")) {
            DataFileMeta one = file(facts);
            runs.add(new LevelSortedRun(one.level(), SortedRun.fromSingle(one)));
        }
        UniversalCompaction strategy =
                new UniversalCompaction(
                        request.get("amplification").asInt(), request.get("ratio").asInt(),
                        request.get("trigger").asInt(), null, null);
        CompactUnit unit = strategy.pick(request.get("levels").asInt(), runs).orElse(null);
        return unit == null ? null : List.of(unit.outputLevel(), names(unit.files()));
    }

    private static Object sections(JsonNode request) {
        List<DataFileMeta> files = new ArrayList<>();
        request.get("files").forEach(one -> files.add(file(one)));
        Comparator<InternalRow> order = Comparator.comparingInt(one -> one.getInt(0));
        List<Object> answer = new ArrayList<>();
        for (List<SortedRun> section : new IntervalPartition(files, order).partition()) {
            List<Object> runs = new ArrayList<>();
            section.forEach(run -> runs.add(names(run.files())));
            answer.add(runs);
        }
        return answer;
    }

    private static FileStoreTable table(JsonNode request) {
        return FileStoreTableFactory.create(
                LocalFileIO.create(), new Path(request.get("path").asText()));
    }

    private static Object write(JsonNode request) throws Exception {
        FileStoreTable table = table(request);
        RowType type = table.rowType();
        BatchWriteBuilder builder = table.newBatchWriteBuilder();
        try (BatchTableWrite writer = builder.newWrite();
                BatchTableCommit commit = builder.newCommit()) {
            writer.withIOManager(IOManager.create(System.getProperty("java.io.tmpdir")));
            for (JsonNode one : request.get("rows")) {
                RowKind kind = RowKind.fromShortString(one.get(0).asText());
                writer.write(row(kind, type.getFieldTypes(), one.get(1)));
            }
            if (request.has("full")) {
                writer.compact(BinaryRow.EMPTY_ROW, 0, request.get("full").asBoolean());
            }
            commit.commit(writer.prepareCommit());
        }
        return true;
    }

    private static Object read(JsonNode request) throws Exception {
        FileStoreTable table = table(request);
        if (request.has("snapshot")) {
            table = table.copy(Map.of("scan.snapshot-id", request.get("snapshot").asText()));
        }
        RowType type = table.rowType();
        ReadBuilder builder = table.newReadBuilder();
        List<Object> answer = new ArrayList<>();
        builder.newRead()
                .createReader(builder.newScan().plan())
                .forEachRemaining(one -> answer.add(values(type, one)));
        return answer;
    }

    static List<Object> values(RowType type, InternalRow row) {
        List<Object> values = new ArrayList<>();
        for (int at = 0; at < type.getFieldCount(); at++) {
            Object value = InternalRow.createFieldGetter(type.getTypeAt(at), at).getFieldOrNull(row);
            values.add(value instanceof BinaryString ? value.toString() : value);
        }
        return values;
    }
}
