import java.util.Arrays;
import java.util.Comparator;
import java.util.concurrent.ExecutorService;
import java.util.function.Consumer;
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

/** What the releases 1.x of Paimon call otherwise than 2.x (PaimonRelease2.java). */
final class PaimonRelease {
    private PaimonRelease() {}

    static CacheManager cache(MemorySize size) {
        return new CacheManager(size);
    }

    static MergeTreeCompactManager compactManager(
            ExecutorService executor, Levels levels, CompactStrategy strategy,
            Comparator<InternalRow> order, long small, CompactRewriter rewriter) {
        return new MergeTreeCompactManager(
                executor, levels, strategy, order, small, Integer.MAX_VALUE, rewriter, null,
                null, false, false, null, false, false);
    }

    static DataEvolutionCompactCoordinator rowIdCompaction(FileStoreTable table) {
        return new DataEvolutionCompactCoordinator(table, false, false);
    }

    static void readWaiting(FileStoreTable table, Consumer<InternalRow> rows) {
        throw new UnsupportedOperationException("releases 1.x read no rows that wait for a bucket");
    }

    /** The bloom filter of a lookup file. */
    static final class Bloom {
        final BloomFilter.Builder builder;

        Bloom(long entries, double fpp) {
            builder = BloomFilter.builder(entries, fpp);
        }

        IntPredicate finished() {
            return builder::testHash;
        }

        byte[] bits() {
            int size = builder.getBuffer().size();
            return Arrays.copyOf(builder.getBuffer().getHeapMemory(), size);
        }
    }
}
