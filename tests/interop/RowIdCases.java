import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.paimon.append.AppendCompactCoordinator;
import org.apache.paimon.append.AppendCompactTask;
import org.apache.paimon.append.dataevolution.DataEvolutionCompactCoordinator;
import org.apache.paimon.append.dataevolution.DataEvolutionCompactTask;
import org.apache.paimon.data.BinaryRow;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.disk.IOManager;
import org.apache.paimon.io.CompactIncrement;
import org.apache.paimon.io.DataFileMeta;
import org.apache.paimon.io.DataIncrement;
import org.apache.paimon.operation.AbstractFileStoreWrite;
import org.apache.paimon.operation.BaseAppendFileStoreWrite;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.SpecialFields;
import org.apache.paimon.table.sink.BatchTableCommit;
import org.apache.paimon.table.sink.CommitMessage;
import org.apache.paimon.table.sink.CommitMessageImpl;
import org.apache.paimon.table.sink.TableWriteImpl;
import org.apache.paimon.table.source.DataSplit;
import org.apache.paimon.table.source.EndOfScanException;
import org.apache.paimon.table.source.ReadBuilder;
import org.apache.paimon.table.source.Split;
import org.apache.paimon.table.system.RowTrackingTable;
import org.apache.paimon.types.DataType;
import org.apache.paimon.types.RowKind;
import org.apache.paimon.types.RowType;
import org.apache.paimon.utils.RecordWriter;

/** What Java does to tables whose rows have ids: reads, updates of rows and of columns, compactions. */
class RowIdCases {
    private static final String USER = "row-id-cases";

    static final List<String> OPERATIONS =
            List.of("tracked", "update_columns", "update_rows", "compact_rows");

    static Object answered(JsonNode request) throws Exception {
        FileStoreTable table = PaimonTables.table(request);
        switch (request.get("op").asText()) {
            case "tracked":
                return tracked(table);
            case "update_columns":
                return updateColumns(table, request);
            case "update_rows":
                return updateRows(table, request);
            case "compact_rows":
                return compact(table.copy(Map.of("compaction.min.file-num", "2")));
            default:
                throw new IllegalArgumentException("unknown operation");
        }
    }

    /** The rows with their ids, and the snapshots that they came or changed with. */
    private static Object tracked(FileStoreTable table) throws Exception {
        RowTrackingTable rows = new RowTrackingTable(table);
        ReadBuilder builder = rows.newReadBuilder();
        List<Object> answer = new ArrayList<>();
        builder.newRead()
                .createReader(builder.newScan().plan())
                .forEachRemaining(one -> answer.add(PaimonValues.values(rows.rowType(), one)));
        return answer;
    }

    private static List<DataSplit> splits(FileStoreTable table) {
        List<DataSplit> found = new ArrayList<>();
        for (Split split : table.newReadBuilder().newScan().plan().splits()) {
            found.add((DataSplit) split);
        }
        return found;
    }

    /** A file of some columns for all rows of a range of ids, as MERGE INTO writes it. */
    private static Object updateColumns(FileStoreTable table, JsonNode request) throws Exception {
        List<String> names = new ArrayList<>();
        request.get("columns").forEach(one -> names.add(one.asText()));
        RowType type = table.rowType().project(names);
        long first = request.get("first").asLong();
        BinaryRow partition = null;
        for (DataSplit split : splits(table)) {
            for (DataFileMeta file : split.dataFiles()) {
                if (file.firstRowId() == first) {
                    partition = split.partition();
                }
            }
        }
        FileStoreTable whole = table.copy(Map.of("target-file-size", "99999 G"));
        TableWriteImpl<?> write = (TableWriteImpl<?>) whole.newBatchWriteBuilder().newWrite();
        write.withWriteType(type);
        AbstractFileStoreWrite<InternalRow> store =
                (AbstractFileStoreWrite<InternalRow>) write.getWrite();
        RecordWriter<InternalRow> writer = store.createWriter(partition, 0);
        for (JsonNode row : request.get("rows")) {
            writer.write(PaimonValues.row(RowKind.INSERT, type.getFieldTypes(), row));
        }
        DataFileMeta made =
                writer.prepareCommit(false).newFilesIncrement().newFiles().get(0);
        writer.close();
        DataIncrement increment =
                new DataIncrement(
                        List.of(made.assignFirstRowId(first)),
                        Collections.emptyList(),
                        Collections.emptyList());
        commit(
                table,
                List.of(
                        new CommitMessageImpl(
                                partition, 0, null, increment, CompactIncrement.emptyIncrement())));
        return true;
    }

    /** All files rewritten with their ids; rows with a value in `ids` get a new last column. */
    private static Object updateRows(FileStoreTable table, JsonNode request) throws Exception {
        Map<Long, JsonNode> values = new LinkedHashMap<>();
        request.get("ids").fields().forEachRemaining(
                one -> values.put(Long.parseLong(one.getKey()), one.getValue()));
        RowType type = SpecialFields.rowTypeWithRowTracking(table.rowType(), false, true);
        int width = table.rowType().getFieldCount();
        DataType last = table.rowType().getTypeAt(width - 1);
        List<CommitMessage> messages = new ArrayList<>();
        for (DataSplit split : splits(table)) {
            TableWriteImpl<?> write = (TableWriteImpl<?>) table.newBatchWriteBuilder().newWrite();
            write.withIOManager(IOManager.create(System.getProperty("java.io.tmpdir")));
            write.withWriteType(type);
            RecordWriter<InternalRow> writer =
                    ((AbstractFileStoreWrite<InternalRow>) write.getWrite())
                            .createWriter(split.partition(), 0);
            RowTrackingTable rows = new RowTrackingTable(table);
            List<InternalRow> changed = new ArrayList<>();
            rows.newReadBuilder().newRead().createReader(split).forEachRemaining(
                    one -> {
                        GenericRow row = new GenericRow(width + 2);
                        for (int at = 0; at < width + 2; at++) {
                            row.setField(
                                    at,
                                    InternalRow.createFieldGetter(rows.rowType().getTypeAt(at), at)
                                            .getFieldOrNull(one));
                        }
                        JsonNode value = values.get(one.getLong(width));
                        if (value != null) {
                            row.setField(width - 1, PaimonValues.value(last, value));
                            row.setField(width + 1, null);
                        }
                        changed.add(row);
                    });
            for (InternalRow row : changed) {
                writer.write(row);
            }
            DataIncrement made = writer.prepareCommit(false).newFilesIncrement();
            writer.close();
            messages.add(
                    new CommitMessageImpl(
                            split.partition(), 0, null,
                            new DataIncrement(
                                    made.newFiles(), split.dataFiles(), Collections.emptyList()),
                            CompactIncrement.emptyIncrement()));
        }
        commit(table, messages);
        return true;
    }

    private static Object compact(FileStoreTable table) throws Exception {
        List<CommitMessage> messages = new ArrayList<>();
        try {
            if (table.coreOptions().dataEvolutionEnabled()) {
                DataEvolutionCompactCoordinator planner =
                        PaimonRelease.rowIdCompaction(table);
                while (true) {
                    for (DataEvolutionCompactTask task : planner.plan()) {
                        messages.add(task.doCompact(table, USER));
                    }
                }
            }
            AppendCompactCoordinator planner = new AppendCompactCoordinator(table, false, null);
            while (true) {
                for (AppendCompactTask task : planner.run()) {
                    BaseAppendFileStoreWrite write =
                            (BaseAppendFileStoreWrite) table.store().newWrite(USER);
                    write.withWriteType(SpecialFields.rowTypeWithRowTracking(table.rowType()));
                    messages.add(task.doCompact(table, write));
                }
            }
        } catch (EndOfScanException end) {
            commit(table, messages);
        }
        return messages.size();
    }

    private static void commit(FileStoreTable table, List<CommitMessage> messages)
            throws Exception {
        try (BatchTableCommit commit = table.newBatchWriteBuilder().newCommit()) {
            commit.commit(messages);
        }
    }
}
