import java.io.FileOutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.fs.Path;
import org.apache.paimon.fs.local.LocalFileIO;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.FileStoreTableFactory;
import org.apache.paimon.table.sink.BatchTableCommit;
import org.apache.paimon.table.sink.BatchTableWrite;
import org.apache.paimon.table.sink.BatchWriteBuilder;

/** A writer of race_java.py: one row a commit while the gate is there; notes what was acknowledged. */
public class PaimonRacer {
    private static final long PAUSE_MILLIS = 1;

    public static void main(String[] arguments) throws Exception {
        Path path = new Path(arguments[0]);
        java.nio.file.Path gate = Paths.get(arguments[1]);
        try (FileOutputStream log = new FileOutputStream(arguments[2], true)) {
            for (long key = Long.parseLong(arguments[3]) + 1; Files.exists(gate); key++) {
                note(log, "trying " + key);
                FileStoreTable table =
                        FileStoreTableFactory.create(LocalFileIO.create(), path);
                BatchWriteBuilder builder = table.newBatchWriteBuilder();
                try (BatchTableWrite write = builder.newWrite();
                        BatchTableCommit commit = builder.newCommit()) {
                    write.write(GenericRow.of(key, 1L));
                    write.write(GenericRow.of(0L, 1L));
                    commit.commit(write.prepareCommit());
                    note(log, "acknowledged " + key);
                } catch (Exception failure) {
                    note(log, "failed " + key + " " + failure.toString().replace('\n', ' '));
                }
                Thread.sleep(PAUSE_MILLIS);
            }
        }
    }

    private static void note(FileOutputStream log, String text) throws Exception {
        log.write((text + "\n").getBytes(StandardCharsets.UTF_8));
        log.getFD().sync();
    }
}
