"""Drives the real Java Apache Paimon 0.9.0 in a JVM inside this process."""

import datetime as dt
import json
import os
import tempfile

import driver_protocol as protocol
import jpype
import pyarrow as pa

KINDS = ["+I", "-U", "+U", "-D"]
EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - Paimon's TIMESTAMP has no zone
MICRO = dt.timedelta(microseconds=1)
COMMIT_USER = "interop-java"


class JavaDriver:
    """Operations on tables named by absolute directory; the JVM starts at the first one."""

    def __init__(self):
        self.spill = tempfile.mkdtemp(prefix="interop-java-")

    # ---- the JVM, and values on their way into it

    def java(self, name):
        """A Java class by its full name."""
        if not jpype.isJVMStarted():
            jpype.startJVM(
                "-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Duser.timezone=UTC",
                "-Djava.io.tmpdir=" + self.spill, "-Darrow.enable_unsafe_memory_access=true",
                "--add-opens=java.base/java.nio=ALL-UNNAMED",
                classpath=os.environ["PAIMON_CLASSPATH"].split(os.pathsep),
            )  # fmt: skip
        return jpype.JClass(name)

    def paimon(self, name):
        """A class of org.apache.paimon."""
        return self.java("org.apache.paimon." + name)

    def java_map(self, values):
        """A java.util.Map of strings."""
        result = self.java("java.util.HashMap")()
        for key, value in values.items():
            result.put(str(key), str(value))
        return result

    def java_list(self, values):
        """A java.util.List."""
        result = self.java("java.util.ArrayList")()
        for value in values:
            result.add(value)
        return result

    def java_type(self, spelled):
        """A Paimon type from its spelling in a schema file: text, or an object when nested."""
        mapper = self.paimon("shade.jackson2.com.fasterxml.jackson.databind.ObjectMapper")()
        return self.paimon("types.DataTypeJsonParser").parseDataType(
            mapper.readTree(json.dumps(spelled))
        )

    def java_value(self, value, kind):
        """A Python value as Paimon's internal one; a timestamp may be nanoseconds since 1970."""
        if value is None:
            return None
        root = str(kind.getTypeRoot())
        boxes = {
            "BOOLEAN": "Boolean", "TINYINT": "Byte", "SMALLINT": "Short", "INTEGER": "Integer",
            "BIGINT": "Long", "FLOAT": "Float", "DOUBLE": "Double",
        }  # fmt: skip
        if root in boxes:
            return self.java("java.lang." + boxes[root])(value)
        if root in ("CHAR", "VARCHAR"):
            return self.paimon("data.BinaryString").fromString(value)
        if root in ("BINARY", "VARBINARY"):
            return jpype.JArray(jpype.JByte)(value)
        if root == "DATE":
            return self.java("java.lang.Integer")((value - EPOCH.date()).days)
        if root == "TIME_WITHOUT_TIME_ZONE":
            since = (value.hour * 60 + value.minute) * 60 + value.second
            return self.java("java.lang.Integer")(since * 1000 + value.microsecond // 1000)
        if root == "DECIMAL":
            exact = self.java("java.math.BigDecimal")(str(value))
            return self.paimon("data.Decimal").fromBigDecimal(
                exact, kind.getPrecision(), kind.getScale()
            )
        if root.startswith("TIMESTAMP"):
            nanos = value if isinstance(value, int) else nanos_since_epoch(value)
            return self.paimon("data.Timestamp").fromEpochMillis(nanos // 10**6, nanos % 10**6)
        return self.nested_value(value, kind, root)

    def nested_value(self, value, kind, root):
        """An array, map or row as Paimon's internal one."""
        if root == "ARRAY":
            inner = [self.java_value(item, kind.getElementType()) for item in value]
            return self.paimon("data.GenericArray")(jpype.JArray(jpype.JObject)(inner))
        if root == "MAP":
            entries = self.java("java.util.HashMap")()
            for key, item in value.items() if isinstance(value, dict) else value:
                entries.put(
                    self.java_value(key, kind.getKeyType()),
                    self.java_value(item, kind.getValueType()),
                )
            return self.paimon("data.GenericMap")(entries)
        if root == "ROW":
            return self.generic_row(value, kind)
        raise protocol.Unsupported("values of type " + root)

    def generic_row(self, values, kind):
        """A dict as a GenericRow of that row type; what the dict lacks is null."""
        fields = list(kind.getFields())
        row = self.paimon("data.GenericRow")(len(fields))
        for position, field in enumerate(fields):
            row.setField(position, self.java_value(values.get(str(field.name())), field.type()))
        return row

    # ---- tables

    def table(self, path, options=None):
        """The table of that directory, opened without a catalog."""
        opened = self.paimon("options.Options").fromMap(self.java_map({"path": path}))
        context = self.paimon("catalog.CatalogContext").create(opened)
        table = self.paimon("table.FileStoreTableFactory").create(context)
        return table.copy(self.java_map(options)) if options else table

    def spill_manager(self):
        """Where sorting and lookups may spill to."""
        return self.paimon("disk.IOManager").create(self.spill)

    def arrow_schema(self, table):
        """The table's columns as an Arrow schema, all nullable: Java checks NOT NULL itself."""
        encoded = bytes(self.paimon("python.SchemaUtil").getArrowSchema(table.rowType()))
        schema = pa.ipc.open_stream(encoded).schema
        return pa.schema([pa.field(field.name, field.type) for field in schema])

    def stream(self, table, rows):
        """Rows as an Arrow stream in the table's own columns; what the rows lack is null."""
        schema = self.arrow_schema(table)
        columns = [
            rows.column(field.name).cast(field.type)
            if field.name in rows.column_names
            else pa.nulls(rows.num_rows, field.type)
            for field in schema
        ]
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as writer:
            writer.write_table(pa.table(columns, schema=schema), max_chunksize=16384)
        return sink.getvalue().to_pybytes()

    def latest_id(self, table):
        """Id of the newest snapshot, None when there is none."""
        found = table.snapshotManager().latestSnapshotId()
        return None if found is None else int(found)

    def read_splits(self, read, splits, kind):
        """Rows of the splits and their kinds."""
        out = self.java("PaimonBridge").read(read.withIOManager(self.spill_manager()), splits, kind)
        return pa.ipc.open_stream(bytes(out[0])).read_all(), [KINDS[byte] for byte in bytes(out[1])]

    # ---- operations

    def do_create(self, warehouse, database, name, fields, primary_key, partitioned_by, options):
        """Create a table in a warehouse folder; returns its directory."""
        opened = self.paimon("options.Options").fromMap(
            self.java_map({"warehouse": warehouse, "cache-enabled": "false"})
        )
        context = self.paimon("catalog.CatalogContext").create(opened)
        catalog = self.paimon("catalog.CatalogFactory").createCatalog(context)
        catalog.createDatabase(database, True)
        builder = self.paimon("schema.Schema").newBuilder()
        for column, spelled in fields:
            builder.column(column, self.java_type(spelled))
        if primary_key:
            builder.primaryKey(self.java_list(primary_key))
        if partitioned_by:
            builder.partitionKeys(self.java_list(partitioned_by))
        builder.options(self.java_map(options))
        catalog.createTable(
            self.paimon("catalog.Identifier").create(database, name), builder.build(), False
        )
        return os.path.join(warehouse, database + ".db", name)

    def do_read(self, path, out, snapshot_id, tag, columns, where):
        """Read the table, or a snapshot or tag of it, where a filter holds."""
        table = self.table(path, protocol.scan_options(snapshot_id, tag))
        builder = table.newReadBuilder()
        if where is not None:
            builder.withFilter(self.predicate(table, where))
        if columns is not None:
            places = [int(table.rowType().getFieldIndex(column)) for column in columns]
            builder.withProjection(jpype.JArray(jpype.JInt)(places))
        splits = builder.newScan().plan().splits()
        # A filter alone only skips files; executeFilter drops the other rows too.
        read = builder.newRead() if where is None else builder.newRead().executeFilter()
        rows, _ = self.read_splits(read, splits, builder.readType())
        protocol.save_table(rows, out)
        files = [file for split in splits for file in split.dataFiles()]
        return {"files": len(files), "rows": sum(int(file.rowCount()) for file in files)}

    def predicate(self, table, where):
        """A Java predicate from [column, operator, value]."""
        column, operator, value = where
        kind = table.rowType()
        place = int(kind.getFieldIndex(column))
        inner = kind.getTypeAt(place)
        build = self.paimon("predicate.PredicateBuilder")(kind)
        python = protocol.decode(value)
        if operator == "between":
            low, high = (self.java_value(bound, inner) for bound in python)
            return build.between(place, low, high)
        if operator == "in":
            return build.in_(place, self.java_list(self.java_value(one, inner) for one in python))
        method = {
            "=": "equal", "!=": "notEqual", "<": "lessThan", "<=": "lessOrEqual", ">": "greaterThan",
            ">=": "greaterOrEqual",
        }[operator]  # fmt: skip
        return getattr(build, method)(place, self.java_value(python, inner))

    def do_write(self, path, rows, kinds, overwrite):
        """Write and commit rows; overwrite is a partition spec, {} for the whole table."""
        table = self.table(path)
        data = protocol.load_table(rows)
        marks = None if kinds is None else bytes(KINDS.index(kind) for kind in kinds)

        def fill(write):
            if any(needs_row_path(field.type) for field in self.arrow_schema(table)):
                self.write_row_by_row(write, table, data, marks)
            else:
                stream = self.stream(table, data)
                self.java("PaimonBridge").write(write, table, stream, marks, self.assigner(table))

        return self.commit(table, fill, overwrite)

    def write_row_by_row(self, write, table, data, marks):
        """For types that Java's Arrow reader mistakes: TIMESTAMP(9), arrays, maps and rows."""
        if self.assigner(table) is not None:
            raise protocol.Unsupported("such types with dynamic buckets")
        kinds = self.paimon("types.RowKind")
        for number, values in enumerate(with_exact_times(data)):
            row = self.generic_row(values, table.rowType())
            row.setRowKind(kinds.fromByteValue(0 if marks is None else marks[number]))
            write.write(row)

    def assigner(self, table):
        """Who picks buckets when the table's are dynamic, else None."""
        if str(table.bucketMode()) != "HASH_DYNAMIC":
            return None
        index_files = table.store().newIndexFileHandler()
        target = table.coreOptions().dynamicBucketTargetRowNum()
        make = self.paimon("index.HashBucketAssigner")
        return make(table.snapshotManager(), COMMIT_USER, index_files, 1, 1, 0, target)

    def commit(self, table, fill, overwrite=None):
        """One commit of what ``fill`` puts into a write; its snapshot id, or None if none came."""
        before = self.latest_id(table)
        last = table.snapshotManager().latestSnapshotOfUser(COMMIT_USER)
        # Identifiers must grow per user, or Java takes the commit for one it has already made.
        identifier = int(last.get().commitIdentifier()) + 1 if last.isPresent() else 1
        write = table.newWrite(COMMIT_USER)
        commit = table.newCommit(COMMIT_USER)
        try:
            write.withIOManager(self.spill_manager())
            write.withExecutionMode(True)
            if overwrite is not None:
                write.withIgnorePreviousFiles(True)
                commit.withOverwrite(self.java_map(overwrite))
            fill(write)
            commit.commit(identifier, write.prepareCommit(True, identifier))
        finally:
            write.close()
            commit.close()
        after = self.latest_id(table)
        return after if after != before else None

    def do_compact(self, path, full):
        """Compact each bucket wholly, or as the universal pick decides."""
        table = self.table(path, {"write-only": "false"})
        serializer = self.paimon("utils.SerializationUtils")
        found = {}
        for split in table.newSnapshotReader().read().splits():
            key = (bytes(serializer.serializeBinaryRow(split.partition())), int(split.bucket()))
            found.setdefault(key, split.partition())

        def fill(write):
            for (_, bucket), partition in sorted(found.items(), key=lambda item: item[0]):
                write.compact(partition, bucket, full)

        return self.commit(table, fill)

    def do_create_tag(self, path, name, snapshot_id):
        """Tag a snapshot, the newest if none is named."""
        table = self.table(path)
        if snapshot_id is None:
            table.createTag(name)
        else:
            table.createTag(name, jpype.JLong(snapshot_id))

    def do_expire(self, path, retain_max, retain_min, older_than_millis):
        """Expire snapshots; returns how many went."""
        config = self.paimon("options.ExpireConfig").builder()
        config.snapshotRetainMax(retain_max).snapshotRetainMin(retain_min)
        config.snapshotTimeRetain(self.java("java.time.Duration").ofMillis(older_than_millis))
        return int(self.table(path).newExpireSnapshots().config(config.build()).expire())

    def do_changes(self, path, out, snapshot_id, mode):
        """One snapshot's changelog files or raw new data files."""
        table = self.table(path)
        scan_mode = getattr(self.paimon("table.source.ScanMode"), mode.upper())
        reader = (
            table.newSnapshotReader().withMode(scan_mode).withSnapshot(jpype.JLong(snapshot_id))
        )
        rows, kinds = self.read_splits(table.newRead(), reader.read().splits(), table.rowType())
        protocol.save_table(rows, out)
        return kinds

    def do_lookup(self, path, keys, out):
        """Point lookups; returns per key whether it was found."""
        table = self.table(path)
        query = table.newLocalTableQuery().withIOManager(self.spill_manager())
        try:
            for split in table.newSnapshotReader().read().splits():
                bucket = int(split.bucket())
                query.refreshFiles(split.partition(), bucket, self.java_list([]), split.dataFiles())
            stream = self.stream(table, protocol.load_table(keys))
            result = self.java("PaimonBridge").lookup(query, table, stream)
        finally:
            query.close()
        protocol.save_table(pa.ipc.open_stream(bytes(result[0])).read_all(), out)
        return [bool(byte) for byte in bytes(result[1])]

    def sort_store(self, table, key_type, block_bytes, compression):
        """Paimon's own sort lookup store, and what turns keys into its bytes."""
        keys = self.paimon("data.serializer.RowCompactedSerializer")(key_type)
        factory = self.paimon("lookup.sort.SortLookupStoreFactory")(
            keys.createSliceComparator(),
            self.paimon("io.cache.CacheManager")(self.paimon("options.MemorySize").ofMebiBytes(8)),
            block_bytes,
            self.paimon("compression.CompressOptions")(compression, 1),
        )
        return factory, keys

    def do_sort_read(self, path, keys, file, compression):
        """Look keys up in a sort file: per key its bytes, what was found, and that written again."""
        table = self.table(path)
        key_type = table.schema().logicalTrimmedPrimaryKeysType()
        factory, key_bytes = self.sort_store(table, key_type, 64 << 10, compression)
        values = self.paimon("data.serializer.RowCompactedSerializer")(table.rowType())
        opened = self.java("java.io.File")(file)
        context = self.paimon("lookup.sort.SortContext")(opened.length())
        reader = factory.createReader(opened, context)
        answers = []
        for row in with_exact_times(protocol.load_table(keys)):
            key = key_bytes.serializeToBytes(self.generic_row(row, key_type))
            found = reader.lookup(key)
            answer = {"key": bytes(key).hex(), "value": None, "again": None}
            if found is not None:
                data = bytes(found)
                again = values.serializeToBytes(
                    values.deserialize(jpype.JArray(jpype.JByte)(data[:-9]))
                )
                answer |= {"value": data.hex(), "again": bytes(again).hex()}
            answers.append(answer)
        reader.close()
        return answers

    def do_sort_write(self, path, rows, file, block_bytes, compression, fpp):
        """Write rows, in key order, into a sort file, numbered from 0, all inserted."""
        table = self.table(path)
        key_type = table.schema().logicalTrimmedPrimaryKeysType()
        factory, key_bytes = self.sort_store(table, key_type, block_bytes, compression)
        values = self.paimon("data.serializer.RowCompactedSerializer")(table.rowType())
        listed = with_exact_times(protocol.load_table(rows))
        bloom = self.paimon("utils.BloomFilter").builder(len(listed), fpp) if fpp else None
        writer = factory.createWriter(self.java("java.io.File")(file), bloom)
        for number, row in enumerate(listed):
            key = key_bytes.serializeToBytes(self.generic_row(row, key_type))
            value = bytes(values.serializeToBytes(self.generic_row(row, table.rowType())))
            value += number.to_bytes(8, "little") + b"\0"
            writer.put(key, jpype.JArray(jpype.JByte)(value))
        writer.close()
        return len(listed)

    def do_buckets(self, path, rows):
        """The bucket of each row."""
        table = self.table(path)
        stream = self.stream(table, protocol.load_table(rows))
        return [int(bucket) for bucket in self.java("PaimonBridge").buckets(table, stream)]

    def do_files(self, path):
        """Live data files, with the members of the fixtures' live_files."""
        serializer = self.paimon("utils.SerializationUtils")
        return [
            {
                "partition_hex": bytes(serializer.serializeBinaryRow(split.partition())).hex(),
                "bucket": int(split.bucket()),
                "level": int(file.level()),
                "file": str(file.fileName()),
                "rows": int(file.rowCount()),
                "deleteRows": int(file.deleteRowCount().orElse(0)),
                "minSeq": int(file.minSequenceNumber()),
                "maxSeq": int(file.maxSequenceNumber()),
            }
            for split in self.table(path).newSnapshotReader().read().splits()
            for file in split.dataFiles()
        ]


def nanos_since_epoch(value):
    """A datetime as nanoseconds since 1970 UTC."""
    plain = value if value.tzinfo is None else value.astimezone(dt.UTC).replace(tzinfo=None)
    return (plain - EPOCH) // MICRO * 1000


def needs_row_path(kind):
    """Whether Java's Arrow reader gets values of this type wrong."""
    return pa.types.is_nested(kind) or (pa.types.is_timestamp(kind) and kind.unit == "ns")


def with_exact_times(table):
    """Rows as dicts, top-level timestamps as nanoseconds so that none of them are cut."""
    columns = []
    for column in table.columns:
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("ns", column.type.tz)).cast(pa.int64())
        columns.append(column)
    return pa.table(columns, names=table.column_names).to_pylist()


if __name__ == "__main__":
    protocol.serve(JavaDriver())
