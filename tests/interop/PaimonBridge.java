import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.util.List;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.arrow.vector.ipc.ArrowStreamWriter;
import org.apache.paimon.arrow.reader.ArrowBatchReader;
import org.apache.paimon.arrow.vector.ArrowFormatWriter;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.index.BucketAssigner;
import org.apache.paimon.reader.RecordReaderIterator;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.query.LocalTableQuery;
import org.apache.paimon.table.sink.RowKeyExtractor;
import org.apache.paimon.table.sink.TableWriteImpl;
import org.apache.paimon.table.source.Split;
import org.apache.paimon.table.source.TableRead;
import org.apache.paimon.types.RowKind;
import org.apache.paimon.types.RowType;

/** Moves rows between Arrow streams and Paimon, so that Python need not call Java once per row. */
public final class PaimonBridge {
    private static final RowKind[] KINDS = {
        RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE
    };

    private interface RowSink {
        void accept(InternalRow row) throws Exception;
    }

    private PaimonBridge() {}

    /** Write a stream; kinds holds one byte per row, null means all inserted; returns the row count. */
    public static long write(
            TableWriteImpl<?> write, FileStoreTable table, byte[] stream, byte[] kinds, BucketAssigner assigner)
            throws Exception {
        long[] count = {0};
        RowKeyExtractor keys = assigner == null ? null : table.createRowKeyExtractor();
        forEach(table.rowType(), stream, row -> {
            row.setRowKind(kinds == null ? RowKind.INSERT : KINDS[kinds[(int) count[0]]]);
            count[0]++;
            if (assigner == null) {
                write.write(row);
            } else {
                keys.setRecord(row);
                write.write(row, assigner.assign(keys.partition(), keys.trimmedPrimaryKey().hashCode()));
            }
        });
        return count[0];
    }

    /** Read splits: [0] the rows as a stream, [1] one kind byte per row. */
    public static Object[] read(TableRead read, List<Split> splits, RowType type) throws Exception {
        try (StreamOut out = new StreamOut(type)) {
            for (Split split : splits) {
                RecordReaderIterator<InternalRow> rows = new RecordReaderIterator<>(read.createReader(split));
                while (rows.hasNext()) {
                    InternalRow row = rows.next();
                    out.add(row);
                    out.marks.write(row.getRowKind().toByteValue());
                }
                rows.close();
            }
            return out.finish();
        }
    }

    /** The bucket that Paimon itself gives each row. */
    public static int[] buckets(FileStoreTable table, byte[] stream) throws Exception {
        RowKeyExtractor keys = table.createRowKeyExtractor();
        java.util.ArrayList<Integer> found = new java.util.ArrayList<>();
        forEach(table.rowType(), stream, row -> {
            keys.setRecord(row);
            found.add(keys.bucket());
        });
        return found.stream().mapToInt(bucket -> bucket).toArray();
    }

    /** Look up the keys of a stream: [0] the rows found as a stream, [1] per key 1 found, 0 not. */
    public static Object[] lookup(LocalTableQuery query, FileStoreTable table, byte[] stream) throws Exception {
        RowKeyExtractor keys = table.createRowKeyExtractor();
        try (StreamOut out = new StreamOut(table.rowType())) {
            forEach(table.rowType(), stream, row -> {
                keys.setRecord(row);
                InternalRow value =
                        query.lookup(keys.partition().copy(), keys.bucket(), keys.trimmedPrimaryKey());
                out.marks.write(value == null ? 0 : 1);
                if (value != null) {
                    out.add(value);
                }
            });
            return out.finish();
        }
    }

    private static void forEach(RowType type, byte[] stream, RowSink sink) throws Exception {
        ArrowBatchReader batches = new ArrowBatchReader(type);
        try (RootAllocator memory = new RootAllocator();
                ArrowStreamReader reader = new ArrowStreamReader(new ByteArrayInputStream(stream), memory)) {
            VectorSchemaRoot root = reader.getVectorSchemaRoot();
            while (reader.loadNextBatch()) {
                if (root.getRowCount() == 0) {
                    continue;
                }
                for (InternalRow row : batches.readBatch(root)) {
                    sink.accept(row);
                }
            }
        }
    }

    /** Rows on their way into an Arrow stream, with a byte noted beside each. */
    private static final class StreamOut implements AutoCloseable {
        final ByteArrayOutputStream marks = new ByteArrayOutputStream();
        private final ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        private final ArrowFormatWriter rows;
        private final ArrowStreamWriter stream;

        StreamOut(RowType type) throws Exception {
            rows = new ArrowFormatWriter(type, 8192, true);
            stream = new ArrowStreamWriter(rows.getVectorSchemaRoot(), null, bytes);
            stream.start();
        }

        void add(InternalRow row) throws Exception {
            if (rows.write(row)) {
                return;
            }
            flush();
            if (!rows.write(row)) {
                throw new IllegalStateException("row does not fit into an empty batch");
            }
        }

        private void flush() throws Exception {
            rows.flush();
            stream.writeBatch();
            rows.getVectorSchemaRoot().clear();
        }

        Object[] finish() throws Exception {
            if (!rows.empty()) {
                flush();
            }
            stream.end();
            return new Object[] {bytes.toByteArray(), marks.toByteArray()};
        }

        @Override
        public void close() throws Exception {
            stream.close();
            rows.close();
        }
    }
}
