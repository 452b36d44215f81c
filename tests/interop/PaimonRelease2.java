import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.function.Consumer;
import java.util.function.IntPredicate;
import org.apache.paimon.KeyValue;
import org.apache.paimon.append.dataevolution.DataEvolutionCompactCoordinator;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.data.serializer.InternalRowSerializer;
import org.apache.paimon.disk.IOManager;
import org.apache.paimon.io.cache.CacheManager;
import org.apache.paimon.mergetree.Levels;
import org.apache.paimon.mergetree.compact.CompactRewriter;
import org.apache.paimon.mergetree.compact.CompactStrategy;
import org.apache.paimon.mergetree.compact.MergeTreeCompactManager;
import org.apache.paimon.options.MemorySize;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.source.DataSplit;
import org.apache.paimon.table.source.PostponeMergePlan;
import org.apache.paimon.table.source.PostponeMergeRead;
import org.apache.paimon.table.source.PostponeMergeReadBuilder;
import org.apache.paimon.utils.BloomFilter;
import org.apache.paimon.utils.IteratorRecordReader;

/** What the releases 2.x of Paimon call otherwise than 1.x (PaimonRelease1.java). */
final class PaimonRelease {
    private PaimonRelease() {}

    static CacheManager cache(MemorySize size) {
        return new CacheManager(size, 0);
    }

    static MergeTreeCompactManager compactManager(
            ExecutorService executor, Levels levels, CompactStrategy strategy,
            Comparator<InternalRow> order, long small, CompactRewriter rewriter) {
        return new MergeTreeCompactManager(
                executor, levels, strategy, order, small, Integer.MAX_VALUE, rewriter, null,
                null, false, false, null, false, false, "");
    }

    static DataEvolutionCompactCoordinator rowIdCompaction(FileStoreTable table) {
        return new DataEvolutionCompactCoordinator(
                table, false, false, table.snapshotManager().latestSnapshot());
    }

    /** Read a table with rows that wait for a bucket, which engines take to theirs (postpone.merge-on-read). */
    static void readWaiting(FileStoreTable table, Consumer<InternalRow> rows) throws IOException {
        PostponeMergeReadBuilder builder =
                PostponeMergeReadBuilder.createSnapshotBound(table, null).get();
        PostponeMergePlan plan = builder.plan();
        IOManager disk = IOManager.create(System.getProperty("java.io.tmpdir"));
        PostponeMergeRead read = builder.newRead().withIOManager(disk);
        InternalRowSerializer keys = new InternalRowSerializer(plan.keyType());
        InternalRowSerializer values = new InternalRowSerializer(plan.mergeReadType());
        Map<List<Object>, DataSplit> real = new HashMap<>();
        for (DataSplit split : plan.realSplits()) {
            if (real.put(List.of(split.partition(), split.bucket()), split) != null) {
                throw new IllegalStateException("a bucket of several splits");
            }
        }
        Map<List<Object>, List<KeyValue>> waiting = new HashMap<>();
        real.keySet().forEach(bucket -> waiting.put(bucket, new ArrayList<>()));
        for (DataSplit split : plan.postponeSplits()) {
            read.createPostponeReader(split)
                    .forEachRemaining(
                            row -> {
                                int bucket = plan.bucketRouter().bucket(split.partition(), row.key());
                                waiting.computeIfAbsent(
                                                List.of(split.partition(), bucket),
                                                place -> new ArrayList<>())
                                        .add(row.copy(keys, values));
                            });
        }
        for (Map.Entry<List<Object>, List<KeyValue>> bucket : waiting.entrySet()) {
            read.createBucketMergeReader(
                            real.get(bucket.getKey()),
                            new IteratorRecordReader<>(bucket.getValue().iterator()))
                    .forEachRemaining(rows::accept);
        }
    }

    /** The bloom filter of a lookup file. */
    static final class Bloom {
        final BloomFilter.Builder builder;
        private BloomFilter filter;

        Bloom(long entries, double fpp) {
            builder = BloomFilter.fixedBuilder(entries, fpp);
        }

        IntPredicate finished() {
            filter = builder.build();
            return filter::testHash;
        }

        byte[] bits() {
            int size = filter.getMemorySegment().size();
            return Arrays.copyOf(filter.getMemorySegment().getHeapMemory(), size);
        }
    }
}
