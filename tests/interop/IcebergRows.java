import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.StringWriter;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.OffsetDateTime;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.BaseTable;
import org.apache.iceberg.Schema;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.StaticTableOperations;
import org.apache.iceberg.StructLike;
import org.apache.iceberg.Table;
import org.apache.iceberg.data.IcebergGenerics;
import org.apache.iceberg.data.Record;
import org.apache.iceberg.expressions.ExpressionParser;
import org.apache.iceberg.hadoop.HadoopFileIO;
import org.apache.iceberg.hadoop.HadoopTables;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.shaded.com.fasterxml.jackson.core.JsonGenerator;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.JsonNode;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.iceberg.util.DateTimeUtil;
import org.apache.iceberg.util.SnapshotUtil;

/**
 * Answers with the rows that Iceberg's own library reads: a request of one line in, a line out, until the input ends.
 *
 * <p>A request is an object: `table` (a metadata file, or the directory of a table), `snapshot` (an id), `ref` (a tag or a
 * branch) and `filter` (an expression as JSON), each of these three or null. The answer has `schema` and `rows`, or `error`.
 */
public final class IcebergRows {
    private static final ObjectMapper JSON =
            new ObjectMapper().configure(JsonGenerator.Feature.QUOTE_NON_NUMERIC_NUMBERS, false);
    private static final Configuration HADOOP = new Configuration();

    private IcebergRows() {}

    public static void main(String[] arguments) throws IOException {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.println(answer(JSON.readTree(line)));
        }
    }

    private static String answer(JsonNode request) throws IOException {
        try {
            return read(request);
        } catch (Exception error) { // the test tells it as a difference
            return JSON.writeValueAsString(Map.of("error", error.toString()));
        }
    }

    private static String read(JsonNode request) throws IOException {
        Table table = open(request.get("table").asText());
        IcebergGenerics.ScanBuilder scan = IcebergGenerics.read(table);
        Long snapshot = snapshot(table, request);
        Schema schema = table.schema();
        if (snapshot != null) {
            scan = scan.useSnapshot(snapshot);
            schema = SnapshotUtil.schemaFor(table, snapshot);
        }
        if (request.hasNonNull("filter")) {
            scan = scan.where(ExpressionParser.fromJson(request.get("filter").toString(), schema));
        }
        StringWriter answer = new StringWriter();
        try (JsonGenerator json = JSON.getFactory().createGenerator(answer);
                CloseableIterable<Record> rows = scan.build()) {
            json.writeStartObject();
            json.writeStringField("schema", SchemaParser.toJson(schema));
            json.writeArrayFieldStart("rows");
            for (Record row : rows) {
                writeRow(json, row, schema.columns().size());
            }
            json.writeEndArray();
            json.writeEndObject();
        }
        return answer.toString();
    }

    private static Table open(String location) {
        if (location.endsWith(".json")) {
            return new BaseTable(new StaticTableOperations(location, new HadoopFileIO(HADOOP)), location);
        }
        return new HadoopTables(HADOOP).load(location);
    }

    private static Long snapshot(Table table, JsonNode request) {
        if (request.hasNonNull("ref")) {
            return table.refs().get(request.get("ref").asText()).snapshotId();
        }
        return request.hasNonNull("snapshot") ? request.get("snapshot").asLong() : null;
    }

    /** Write the first columns of a row; of files with deleted rows it has the position, too. */
    private static void writeRow(JsonGenerator json, StructLike row, int size) throws IOException {
        json.writeStartArray();
        for (int position = 0; position < size; position++) {
            write(json, row.get(position, Object.class));
        }
        json.writeEndArray();
    }

    /** Write a value: rows and lists as arrays, maps as arrays of pairs, times as numbers, decimals and binaries as text. */
    private static void write(JsonGenerator json, Object value) throws IOException {
        if (value == null) {
            json.writeNull();
        } else if (value instanceof StructLike row) {
            writeRow(json, row, row.size());
        } else if (value instanceof List<?> items) {
            json.writeStartArray();
            for (Object item : items) {
                write(json, item);
            }
            json.writeEndArray();
        } else if (value instanceof Map<?, ?> pairs) {
            json.writeStartArray();
            for (Map.Entry<?, ?> pair : pairs.entrySet()) {
                json.writeStartArray();
                write(json, pair.getKey());
                write(json, pair.getValue());
                json.writeEndArray();
            }
            json.writeEndArray();
        } else {
            writeScalar(json, value);
        }
    }

    private static void writeScalar(JsonGenerator json, Object value) throws IOException {
        if (value instanceof BigDecimal decimal) {
            json.writeString(decimal.toPlainString());
        } else if (value instanceof ByteBuffer bytes) {
            byte[] copy = new byte[bytes.remaining()];
            bytes.duplicate().get(copy);
            json.writeString(HexFormat.of().formatHex(copy));
        } else if (value instanceof byte[] bytes) {
            json.writeString(HexFormat.of().formatHex(bytes));
        } else if (value instanceof LocalDate date) {
            json.writeNumber(DateTimeUtil.daysFromDate(date));
        } else if (value instanceof LocalDateTime time) {
            json.writeNumber(DateTimeUtil.microsFromTimestamp(time));
        } else if (value instanceof OffsetDateTime time) {
            json.writeNumber(DateTimeUtil.microsFromTimestamptz(time));
        } else {
            JSON.writeValue(json, value); // a boolean, a number, or a text
        }
    }
}
