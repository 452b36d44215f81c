import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.paimon.CoreOptions;
import org.apache.paimon.compact.CompactResult;
import org.apache.paimon.compact.CompactUnit;
import org.apache.paimon.data.BinaryRow;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.io.DataFileMeta;
import org.apache.paimon.manifest.FileSource;
import org.apache.paimon.mergetree.Levels;
import org.apache.paimon.mergetree.SortedRun;
import org.apache.paimon.mergetree.compact.CompactRewriter;
import org.apache.paimon.mergetree.compact.CompactStrategy;
import org.apache.paimon.mergetree.compact.EarlyFullCompaction;
import org.apache.paimon.mergetree.compact.ForceUpLevel0Compaction;
import org.apache.paimon.mergetree.compact.IntervalPartition;
import org.apache.paimon.mergetree.compact.MergeTreeCompactManager;
import org.apache.paimon.mergetree.compact.UniversalCompaction;
import org.apache.paimon.options.Options;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.stats.SimpleStats;

/** What Java makes of the files of a bucket: picks, sections, and how a compaction is carried out. */
final class PaimonShapes {
    private static final Comparator<InternalRow> ORDER =
            Comparator.comparingInt(one -> one.getInt(0));
    private static final ExecutorService EXECUTOR =
            Executors.newSingleThreadExecutor(
                    work -> {
                        Thread thread = new Thread(work);
                        thread.setDaemon(true);
                        return thread;
                    });

    private PaimonShapes() {}

    /** A file: [name, size, first key, last key, first sequence number, last one, level, deletes]. */
    private static DataFileMeta file(JsonNode facts) {
        Long deletes = facts.get(7).isNull() ? null : facts.get(7).asLong();
        return DataFileMeta.create(
                facts.get(0).asText(), facts.get(1).asLong(), 1L, key(facts.get(2)),
                key(facts.get(3)), SimpleStats.EMPTY_STATS, SimpleStats.EMPTY_STATS,
                facts.get(4).asLong(), facts.get(5).asLong(), 0L, facts.get(6).asInt(), deletes,
                null, FileSource.APPEND, null, null, null);
    }

    private static BinaryRow key(JsonNode value) {
        return BinaryRow.singleColumn(value.asInt());
    }

    private static List<DataFileMeta> files(JsonNode request) {
        List<DataFileMeta> files = new ArrayList<>();
        request.get("files").forEach(one -> files.add(file(one)));
        return files;
    }

    private static Levels levels(JsonNode request) {
        return new Levels(ORDER, files(request), request.get("levels").asInt());
    }

    private static List<String> names(List<DataFileMeta> files) {
        List<String> names = new ArrayList<>();
        files.forEach(one -> names.add(one.fileName()));
        return names;
    }

    private static List<Object> names(Iterable<List<SortedRun>> sections) {
        List<Object> answer = new ArrayList<>();
        for (List<SortedRun> section : sections) {
            List<Object> runs = new ArrayList<>();
            section.forEach(run -> runs.add(names(run.files())));
            answer.add(runs);
        }
        return answer;
    }

    static Object sections(JsonNode request) {
        return names(new IntervalPartition(files(request), ORDER).partition());
    }

    private static CompactStrategy strategy(JsonNode request) {
        EarlyFullCompaction early =
                new EarlyFullCompaction(null, number(request, "total"), number(request, "above"));
        UniversalCompaction universal =
                new UniversalCompaction(
                        request.get("amplification").asInt(), request.get("ratio").asInt(),
                        request.get("trigger").asInt(), early, null);
        return request.get("forced").asBoolean()
                ? new ForceUpLevel0Compaction(universal, null)
                : universal;
    }

    private static Long number(JsonNode request, String name) {
        return request.get(name).isNull() ? null : request.get(name).asLong();
    }

    /** The output level and the files, or null. */
    static Object pick(JsonNode request) {
        Levels levels = levels(request);
        CompactUnit unit =
                request.get("full").asBoolean()
                        ? CompactStrategy.pickFullCompaction(
                                        levels.numberOfLevels(), levels.levelSortedRuns(), null,
                                        null, false)
                                .orElse(null)
                        : strategy(request)
                                .pick(levels.numberOfLevels(), levels.levelSortedRuns())
                                .orElse(null);
        return unit == null ? null : List.of(unit.outputLevel(), names(unit.files()));
    }

    /** What the compaction of a unit rewrites and what it only moves: each with its output level. */
    static Object compact(JsonNode request) throws Exception {
        Recorder recorder = new Recorder();
        Levels levels = levels(request);
        List<String> wanted = new ArrayList<>();
        request.get("unit").forEach(one -> wanted.add(one.asText()));
        List<DataFileMeta> taken = new ArrayList<>(levels.allFiles());
        taken.removeIf(one -> !wanted.contains(one.fileName()));
        int output = request.get("output").asInt();
        CompactStrategy strategy =
                (count, runs) -> java.util.Optional.of(CompactUnit.fromFiles(output, taken, false));
        Options options = new Options();
        options.set(CoreOptions.TARGET_FILE_SIZE.key(), request.get("target").asText());
        long small = new CoreOptions(options).compactionFileSize(true);
        MergeTreeCompactManager manager =
                PaimonRelease.compactManager(
                        EXECUTOR, levels, strategy, ORDER, small, recorder);
        manager.triggerCompaction(false);
        manager.getCompactionResult(true);
        return recorder.found;
    }

    /** A rewriter that writes nothing, and keeps what it was asked for. */
    private static final class Recorder implements CompactRewriter {
        private final List<Map<String, Object>> found = new ArrayList<>();

        @Override
        public CompactResult rewrite(int level, boolean dropDelete, List<List<SortedRun>> sections) {
            Map<String, Object> step = new LinkedHashMap<>();
            step.put("level", level);
            step.put("drops", dropDelete);
            step.put("sections", names(sections));
            found.add(step);
            return new CompactResult();
        }

        @Override
        public CompactResult upgrade(int level, DataFileMeta file) {
            found.add(Map.of("level", level, "moved", file.fileName()));
            return new CompactResult();
        }

        @Override
        public void close() {}
    }
}
