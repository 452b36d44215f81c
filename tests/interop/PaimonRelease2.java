import java.util.Arrays;
import java.util.Comparator;
import java.util.concurrent.ExecutorService;
import java.util.function.IntPredicate;
import org.apache.paimon.append.dataevolution.DataEvolutionCompactCoordinator;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.io.cache.CacheManager;
import org.apache.paimon.mergetree.Levels;
import org.apache.paimon.mergetree.compact.CompactRewriter;
import org.apache.paimon.mergetree.compact.CompactStrategy;
import org.apache.paimon.mergetree.compact.MergeTreeCompactManager;
import org.apache.paimon.options.MemorySize;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.utils.BloomFilter;

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
