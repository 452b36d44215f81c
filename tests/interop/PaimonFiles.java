import java.io.ByteArrayOutputStream;
import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.function.IntPredicate;
import org.apache.paimon.KeyValue;
import org.apache.paimon.compression.CompressOptions;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.data.serializer.RowCompactedSerializer;
import org.apache.paimon.fileindex.FileIndexFormat;
import org.apache.paimon.fileindex.FileIndexPredicate;
import org.apache.paimon.fileindex.FileIndexResult;
import org.apache.paimon.fileindex.FileIndexWriter;
import org.apache.paimon.fileindex.FileIndexer;
import org.apache.paimon.fileindex.bitmap.BitmapIndexResult;
import org.apache.paimon.format.SimpleStatsCollector;
import org.apache.paimon.lookup.sort.SortLookupStoreFactory;
import org.apache.paimon.lookup.sort.SortLookupStoreReader;
import org.apache.paimon.lookup.sort.SortLookupStoreWriter;
import org.apache.paimon.mergetree.lookup.DefaultLookupSerializerFactory;
import org.apache.paimon.mergetree.lookup.PersistProcessor;
import org.apache.paimon.mergetree.lookup.PersistValueProcessor;
import org.apache.paimon.options.MemorySize;
import org.apache.paimon.options.Options;
import org.apache.paimon.predicate.Predicate;
import org.apache.paimon.predicate.PredicateBuilder;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.statistics.SimpleColStatsCollector;
import org.apache.paimon.stats.SimpleStats;
import org.apache.paimon.stats.SimpleStatsConverter;
import org.apache.paimon.types.DataType;
import org.apache.paimon.types.RowKind;
import org.apache.paimon.types.RowType;
import org.apache.paimon.utils.BloomFilter;
import org.apache.paimon.utils.MurmurHashUtils;

/** Lookup files, their bloom filters, and statistics of columns. */
final class PaimonFiles {
    private static final HexFormat HEX = HexFormat.of();

    private PaimonFiles() {}

    /** The store of a request, and what turns its rows into bytes. */
    private static final class Store {
        final List<DataType> keyTypes;
        final List<DataType> types;
        final RowType type;
        final RowCompactedSerializer keys;
        final PersistProcessor<KeyValue> values;
        final SortLookupStoreFactory files;

        Store(JsonNode request) {
            keyTypes = PaimonValues.types(request.get("keyTypes"));
            types = PaimonValues.types(request.get("types"));
            type = RowType.of(types.toArray(new DataType[0]));
            keys = new RowCompactedSerializer(RowType.of(keyTypes.toArray(new DataType[0])));
            DefaultLookupSerializerFactory rows = new DefaultLookupSerializerFactory();
            values = PersistValueProcessor.factory(type).create(rows.version(), rows, type);
            files =
                    new SortLookupStoreFactory(
                            keys.createSliceComparator(),
                            PaimonRelease.cache(MemorySize.ofMebiBytes(8)),
                            request.get("block").asInt(),
                            new CompressOptions(request.get("compression").asText(), 1));
        }

        GenericRow key(JsonNode values) {
            return PaimonValues.row(RowKind.INSERT, keyTypes, values);
        }
    }

    /** Bytes of the file that rows make, each [key, row, sequence number, kind], in key order. */
    static Object lookupWrite(JsonNode request) throws Exception {
        Store store = new Store(request);
        JsonNode rows = request.get("rows");
        BloomFilter.Builder bloom =
                request.get("fpp").isNull()
                        ? null
                        : new PaimonRelease.Bloom(rows.size(), request.get("fpp").asDouble())
                                .builder;
        File file = File.createTempFile("lookup", null);
        try {
            SortLookupStoreWriter writer = store.files.createWriter(file, bloom);
            for (JsonNode one : rows) {
                KeyValue row = new KeyValue();
                GenericRow key = store.key(one.get(0));
                RowKind kind = RowKind.fromShortString(one.get(3).asText());
                InternalRow value = PaimonValues.row(RowKind.INSERT, store.types, one.get(1));
                row.replace(key, one.get(2).asLong(), kind, value);
                writer.put(store.keys.serializeToBytes(key), store.values.persistToDisk(row));
            }
            writer.close();
            return HEX.formatHex(Files.readAllBytes(file.toPath()));
        } finally {
            file.delete();
        }
    }

    /** What the keys find in a file: [row, sequence number, kind], or null. */
    static Object lookupRead(JsonNode request) throws Exception {
        Store store = new Store(request);
        Path file = Files.createTempFile("lookup", null);
        try {
            Files.write(file, HEX.parseHex(request.get("file").asText()));
            List<Object> answer = new ArrayList<>();
            try (SortLookupStoreReader reader = store.files.createReader(file.toFile())) {
                for (JsonNode one : request.get("keys")) {
                    GenericRow key = store.key(one);
                    byte[] found = reader.lookup(store.keys.serializeToBytes(key));
                    answer.add(found == null ? null : read(store, key, found));
                }
            }
            return answer;
        } finally {
            Files.delete(file);
        }
    }

    private static Object read(Store store, InternalRow key, byte[] found) {
        KeyValue row = store.values.readFromDisk(key, 0, found, "");
        return List.of(
                PaimonValues.values(store.type, row.value()), row.sequenceNumber(),
                row.valueKind().shortString());
    }

    /** Bits of the filter of some keys. */
    static Object bloom(JsonNode request) {
        JsonNode keys = request.get("keys");
        PaimonRelease.Bloom filter =
                new PaimonRelease.Bloom(
                        request.get("entries").asLong(), request.get("fpp").asDouble());
        keys.forEach(
                key -> filter.builder.addHash(MurmurHashUtils.hashBytes(HEX.parseHex(key.asText()))));
        IntPredicate answers = filter.finished();
        List<Boolean> found = new ArrayList<>();
        for (JsonNode key : request.get("others")) {
            found.add(answers.test(MurmurHashUtils.hashBytes(HEX.parseHex(key.asText()))));
        }
        return List.of(HEX.formatHex(filter.bits()), found);
    }

    /** Minima, maxima and null counts of rows, as a manifest holds them. */
    static Object stats(JsonNode request) {
        List<DataType> types = PaimonValues.types(request.get("types"));
        RowType type = RowType.of(types.toArray(new DataType[0]));
        SimpleColStatsCollector.Factory[] modes =
                new SimpleColStatsCollector.Factory[types.size()];
        for (int at = 0; at < modes.length; at++) {
            modes[at] = SimpleColStatsCollector.from(request.get("modes").get(at).asText());
        }
        SimpleStatsCollector collector = new SimpleStatsCollector(type, modes);
        for (JsonNode one : request.get("rows")) {
            collector.collect(PaimonValues.row(RowKind.INSERT, types, one));
        }
        SimpleStats stats = new SimpleStatsConverter(type).toBinaryAllMode(collector.extract());
        List<Object> nulls = new ArrayList<>();
        for (int at = 0; at < types.size(); at++) {
            nulls.add(stats.nullCounts().isNullAt(at) ? null : stats.nullCounts().getLong(at));
        }
        return List.of(
                HEX.formatHex(stats.minValues().toBytes()),
                HEX.formatHex(stats.maxValues().toBytes()),
                nulls,
                PaimonValues.values(type, stats.minValues()),
                PaimonValues.values(type, stats.maxValues()));
    }

    /** Java's file index of a column, and what it answers of another one: rows, or whether it may match. */
    static Object fileIndex(JsonNode request) throws Exception {
        DataType type = PaimonValues.types(request.get("types")).get(0);
        String kind = request.get("kind").asText();
        Options options = new Options();
        request.get("options").fields().forEachRemaining(
                member -> options.set(member.getKey(), member.getValue().asText()));
        FileIndexWriter writer = FileIndexer.create(kind, type, options).createWriter();
        for (JsonNode value : request.get("values")) {
            writer.writeRecord(PaimonValues.value(type, value));
        }
        ByteArrayOutputStream written = new ByteArrayOutputStream();
        try (FileIndexFormat.Writer file = FileIndexFormat.createWriter(written)) {
            file.writeColumnIndexes(Map.of("c", Map.of(kind, writer.serializedBytes())));
        }
        List<Object> answers = new ArrayList<>();
        answers.add(HEX.formatHex(written.toByteArray()));
        byte[] other = HEX.parseHex(request.get("other").asText());
        RowType rowType = RowType.of(new DataType[] {type}, new String[] {"c"});
        PredicateBuilder builder = new PredicateBuilder(rowType);
        for (JsonNode asked : request.get("asked")) {
            Object low = PaimonValues.value(type, asked.get(1));
            Predicate predicate =
                    switch (asked.get(0).asText()) {
                        case "=" -> builder.equal(0, low);
                        case "<" -> builder.lessThan(0, low);
                        case "<=" -> builder.lessOrEqual(0, low);
                        case ">" -> builder.greaterThan(0, low);
                        case ">=" -> builder.greaterOrEqual(0, low);
                        case "<>" -> builder.notEqual(0, low);
                        case "null" -> builder.isNull(0);
                        default -> builder.isNotNull(0);
                    };
            try (FileIndexPredicate index = new FileIndexPredicate(other, rowType)) {
                FileIndexResult result = index.evaluate(predicate);
                List<Integer> rows = new ArrayList<>();
                if (result instanceof BitmapIndexResult) {
                    ((BitmapIndexResult) result).get().iterator().forEachRemaining(rows::add);
                    answers.add(rows);
                } else {
                    answers.add(result.remain());
                }
            }
        }
        return answers;
    }
}
