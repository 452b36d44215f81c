import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.time.LocalDateTime;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.paimon.CoreOptions;
import org.apache.paimon.data.BinaryRow;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.data.serializer.InternalRowSerializer;
import org.apache.paimon.iceberg.IcebergOptions;
import org.apache.paimon.options.ConfigOption;
import org.apache.paimon.options.Options;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.paimon.tag.TagPeriodHandler;
import org.apache.paimon.types.DataType;
import org.apache.paimon.types.DataTypeJsonParser;
import org.apache.paimon.types.RowKind;
import org.apache.paimon.types.RowType;
import org.apache.paimon.utils.InternalRowPartitionComputer;

/** Asks the newest Java Paimon: one JSON request per line in, one JSON answer per line out. */
public class PaimonCases {
    private static final ObjectMapper JSON = new ObjectMapper();

    /** One operation. */
    private interface Operation {
        Object answer(JsonNode request) throws Exception;
    }

    private static final Map<String, Operation> OPERATIONS = new LinkedHashMap<>();

    static {
        OPERATIONS.put("options", request -> options());
        OPERATIONS.put("rows", PaimonCases::rows);
        OPERATIONS.put("partitions", PaimonCases::partitions);
        OPERATIONS.put("tagNames", PaimonCases::tagNames);
        OPERATIONS.put("automatic", PaimonCases::automatic);
        OPERATIONS.put("pick", PaimonShapes::pick);
        OPERATIONS.put("sections", PaimonShapes::sections);
        OPERATIONS.put("compactBucket", PaimonShapes::compact);
        OPERATIONS.put("lookupWrite", PaimonFiles::lookupWrite);
        OPERATIONS.put("lookupRead", PaimonFiles::lookupRead);
        OPERATIONS.put("bloom", PaimonFiles::bloom);
        OPERATIONS.put("stats", PaimonFiles::stats);
        OPERATIONS.put("fileIndex", PaimonFiles::fileIndex);
        OPERATIONS.put("create", PaimonTables::create);
        OPERATIONS.put("tables", PaimonTables::names);
        OPERATIONS.put("write", PaimonTables::write);
        OPERATIONS.put("compact", PaimonTables::compact);
        OPERATIONS.put("read", PaimonTables::read);
        OPERATIONS.put("readWaiting", PaimonTables::readWaiting);
        OPERATIONS.put("changes", PaimonTables::changes);
        OPERATIONS.put("createTag", PaimonTables::createTag);
        OPERATIONS.put("createBranch", PaimonTables::createBranch);
        OPERATIONS.put("deleteTag", PaimonTables::deleteTag);
        OPERATIONS.put("rollback", PaimonTables::rollback);
        OPERATIONS.put("expire", PaimonTables::expire);
        OPERATIONS.put("alter", PaimonTables::alter);
        OPERATIONS.put("files", PaimonTables::files);
        for (String name : RowIdCases.OPERATIONS) {
            OPERATIONS.put(name, RowIdCases::answered);
        }
    }

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

    /** The answer of an operation; of several cases of it, a list of answers. */
    private static Object answered(JsonNode request) throws Exception {
        Operation operation = OPERATIONS.get(request.get("op").asText());
        if (!request.has("cases")) {
            return operation.answer(request);
        }
        List<Object> answers = new ArrayList<>();
        for (JsonNode one : request.get("cases")) {
            answers.add(operation.answer(one));
        }
        return answers;
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
        List<DataType> types = PaimonValues.types(request.get("types"));
        InternalRowSerializer serializer =
                new InternalRowSerializer(types.toArray(new DataType[0]));
        List<Object> answer = new ArrayList<>();
        for (JsonNode values : request.get("rows")) {
            BinaryRow row =
                    serializer.toBinaryRow(PaimonValues.row(RowKind.INSERT, types, values));
            answer.add(List.of(HexFormat.of().formatHex(row.toBytes()), row.hashCode()));
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
            GenericRow row = GenericRow.of(PaimonValues.value(type, one));
            answer.add(computer.generatePartValues(row).get("p"));
        }
        return answer;
    }

    private static TagPeriodHandler periods(JsonNode request) {
        Options options = new Options();
        request.get("options")
                .fields()
                .forEachRemaining(one -> options.set(one.getKey(), one.getValue().asText()));
        return TagPeriodHandler.create(new CoreOptions(options));
    }

    /** Which names of tags are those of automatic ones. */
    private static Object automatic(JsonNode request) {
        List<Boolean> answer = new ArrayList<>();
        request.get("names")
                .forEach(one -> answer.add(periods(request).isAutoTag(one.asText())));
        return answer;
    }

    /** Names of the automatic tags that close before some times (texts), under a table's options. */
    private static Object tagNames(JsonNode request) {
        TagPeriodHandler handler = periods(request);
        List<String> answer = new ArrayList<>();
        for (JsonNode time : request.get("times")) {
            LocalDateTime moment = LocalDateTime.parse(time.asText());
            answer.add(handler.timeToTag(handler.normalizeToPreviousTag(moment)));
        }
        return answer;
    }
}
