-- A catalog of version 1, as SQLite dumps it. Never to be written anew.
BEGIN TRANSACTION;
CREATE TABLE lsm_catalog_versions (
	version INTEGER NOT NULL, 
	description TEXT NOT NULL, 
	PRIMARY KEY (version)
);
INSERT INTO "lsm_catalog_versions" VALUES(1,'Paimon''s tables, lineage and views');
CREATE TABLE lsm_column_inputs (
	table_id INTEGER NOT NULL, 
	snapshot_id BIGINT NOT NULL, 
	position INTEGER NOT NULL, 
	column_name TEXT NOT NULL, 
	input_column TEXT NOT NULL, 
	dataset TEXT NOT NULL, 
	PRIMARY KEY (table_id, snapshot_id, position, column_name, input_column), 
	FOREIGN KEY(table_id) REFERENCES lsm_tables (table_id) ON DELETE CASCADE
);
CREATE TABLE lsm_compactions (
	table_id INTEGER NOT NULL, 
	snapshot_id BIGINT NOT NULL, 
	bucket INTEGER NOT NULL, 
	partition BLOB NOT NULL, 
	partition_path TEXT NOT NULL, 
	output_level INTEGER, 
	files_read BIGINT NOT NULL, 
	files_written BIGINT NOT NULL, 
	files_upgraded BIGINT NOT NULL, 
	rows_read BIGINT NOT NULL, 
	rows_written BIGINT NOT NULL, 
	bytes_read BIGINT NOT NULL, 
	bytes_written BIGINT NOT NULL, 
	PRIMARY KEY (table_id, snapshot_id, bucket, partition), 
	FOREIGN KEY(table_id) REFERENCES lsm_tables (table_id) ON DELETE CASCADE
);
CREATE TABLE lsm_file_edges (
	table_id INTEGER NOT NULL, 
	snapshot_id BIGINT NOT NULL, 
	bucket INTEGER NOT NULL, 
	partition BLOB NOT NULL, 
	source_name TEXT NOT NULL, 
	source_level INTEGER NOT NULL, 
	target_name TEXT NOT NULL, 
	target_level INTEGER NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	PRIMARY KEY (table_id, snapshot_id, bucket, partition, source_name, source_level, target_name, target_level), 
	FOREIGN KEY(table_id) REFERENCES lsm_tables (table_id) ON DELETE CASCADE
);
CREATE TABLE lsm_files (
	table_id INTEGER NOT NULL, 
	file_name TEXT NOT NULL, 
	level INTEGER NOT NULL, 
	bucket INTEGER NOT NULL, 
	partition BLOB NOT NULL, 
	partition_path TEXT NOT NULL, 
	content VARCHAR(16) NOT NULL, 
	total_buckets BIGINT NOT NULL, 
	row_count BIGINT NOT NULL, 
	delete_row_count BIGINT, 
	file_size BIGINT NOT NULL, 
	min_key BLOB NOT NULL, 
	max_key BLOB NOT NULL, 
	min_sequence_number BIGINT NOT NULL, 
	max_sequence_number BIGINT NOT NULL, 
	schema_id BIGINT NOT NULL, 
	creation_millis BIGINT, 
	file_source VARCHAR(16), 
	extra_files TEXT, 
	external_path TEXT, 
	added_by BIGINT, 
	deleted_by BIGINT, 
	removed BOOLEAN DEFAULT 0 NOT NULL, 
	PRIMARY KEY (table_id, file_name, level, bucket, partition), 
	FOREIGN KEY(table_id) REFERENCES lsm_tables (table_id) ON DELETE CASCADE
);
INSERT INTO "lsm_files" VALUES(1,'f1',0,0,X'000000000000000000000000','','data',2,10,0,1000,X'00000000',X'00000009',0,10,0,1357000000000,'append',NULL,NULL,1,2,0);
INSERT INTO "lsm_files" VALUES(1,'f2',0,0,X'000000000000000000000000','','data',2,10,0,1000,X'00000000',X'00000009',0,10,0,1357000000000,'append',NULL,NULL,2,NULL,0);
CREATE TABLE lsm_inputs (
	table_id INTEGER NOT NULL, 
	snapshot_id BIGINT NOT NULL, 
	position INTEGER NOT NULL, 
	dataset TEXT NOT NULL, 
	input_snapshot_id BIGINT, 
	after_snapshot_id BIGINT, 
	input_version TEXT, 
	role TEXT NOT NULL, 
	PRIMARY KEY (table_id, snapshot_id, position), 
	FOREIGN KEY(table_id) REFERENCES lsm_tables (table_id) ON DELETE CASCADE
);
CREATE TABLE lsm_manifest_lists (
	table_id INTEGER NOT NULL, 
	snapshot_id BIGINT NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	file_name TEXT NOT NULL, 
	file_size BIGINT, 
	manifest_count BIGINT NOT NULL, 
	added_file_count BIGINT NOT NULL, 
	deleted_file_count BIGINT NOT NULL, 
	PRIMARY KEY (table_id, snapshot_id, kind), 
	FOREIGN KEY(table_id) REFERENCES lsm_tables (table_id) ON DELETE CASCADE
);
INSERT INTO "lsm_manifest_lists" VALUES(1,1,'base','base-orders-1',9,0,0,0);
INSERT INTO "lsm_manifest_lists" VALUES(1,1,'delta','delta-orders-1',9,1,1,0);
INSERT INTO "lsm_manifest_lists" VALUES(1,2,'base','base-orders-2',9,1,1,0);
INSERT INTO "lsm_manifest_lists" VALUES(1,2,'delta','delta-orders-2',9,1,2,0);
CREATE TABLE lsm_manifests (
	table_id INTEGER NOT NULL, 
	snapshot_id BIGINT NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	position BIGINT NOT NULL, 
	file_name TEXT NOT NULL, 
	file_size BIGINT NOT NULL, 
	added_file_count BIGINT NOT NULL, 
	deleted_file_count BIGINT NOT NULL, 
	schema_id BIGINT NOT NULL, 
	min_bucket INTEGER, 
	max_bucket INTEGER, 
	min_level INTEGER, 
	max_level INTEGER, 
	PRIMARY KEY (table_id, snapshot_id, kind, position), 
	FOREIGN KEY(table_id) REFERENCES lsm_tables (table_id) ON DELETE CASCADE
);
INSERT INTO "lsm_manifests" VALUES(1,1,'delta',0,'manifest-orders-1',500,1,0,0,0,1,0,5);
INSERT INTO "lsm_manifests" VALUES(1,2,'base',0,'manifest-orders-1',500,1,0,0,0,1,0,5);
INSERT INTO "lsm_manifests" VALUES(1,2,'delta',0,'manifest-orders-2',500,2,0,0,0,1,0,5);
CREATE TABLE lsm_runs (
	run_id TEXT NOT NULL, 
	asset_key TEXT NOT NULL, 
	engine TEXT, 
	kind TEXT, 
	dagster_run_id TEXT, 
	user_name TEXT, 
	started_millis BIGINT, 
	PRIMARY KEY (run_id, asset_key)
);
INSERT INTO "lsm_runs" VALUES('commit-user:writer','',NULL,NULL,NULL,NULL,NULL);
CREATE TABLE lsm_snapshots (
	table_id INTEGER NOT NULL, 
	snapshot_id BIGINT NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	run_id TEXT NOT NULL, 
	asset_key TEXT NOT NULL, 
	version INTEGER, 
	schema_id BIGINT NOT NULL, 
	base_manifest_list TEXT NOT NULL, 
	base_manifest_list_size BIGINT, 
	delta_manifest_list TEXT NOT NULL, 
	delta_manifest_list_size BIGINT, 
	changelog_manifest_list TEXT, 
	changelog_manifest_list_size BIGINT, 
	index_manifest TEXT, 
	commit_user TEXT NOT NULL, 
	commit_identifier BIGINT NOT NULL, 
	commit_kind VARCHAR(16) NOT NULL, 
	time_millis BIGINT NOT NULL, 
	log_offsets TEXT, 
	total_record_count BIGINT, 
	delta_record_count BIGINT, 
	changelog_record_count BIGINT, 
	watermark BIGINT, 
	statistics TEXT, 
	properties TEXT, 
	next_row_id BIGINT, 
	uuid TEXT, 
	operation TEXT, 
	writer_version TEXT, 
	files_added BIGINT NOT NULL, 
	files_deleted BIGINT NOT NULL, 
	bytes_added BIGINT NOT NULL, 
	bytes_deleted BIGINT NOT NULL, 
	PRIMARY KEY (table_id, snapshot_id), 
	FOREIGN KEY(table_id) REFERENCES lsm_tables (table_id) ON DELETE CASCADE
);
INSERT INTO "lsm_snapshots" VALUES(1,1,'live','commit-user:writer','',3,0,'base-orders-1',NULL,'delta-orders-1',NULL,NULL,NULL,NULL,'writer',1,'APPEND',1357000001000,NULL,10,10,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1,0,1000,0);
INSERT INTO "lsm_snapshots" VALUES(1,2,'live','commit-user:writer','',3,0,'base-orders-2',NULL,'delta-orders-2',NULL,NULL,NULL,NULL,'writer',2,'APPEND',1357000002000,NULL,20,10,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1,1,1000,1000);
CREATE TABLE lsm_tables (
	table_id INTEGER NOT NULL, 
	catalog_key VARCHAR(255) NOT NULL, 
	database_name VARCHAR(255) NOT NULL, 
	table_name VARCHAR(255) NOT NULL, 
	branch VARCHAR(255) NOT NULL, 
	PRIMARY KEY (table_id)
);
INSERT INTO "lsm_tables" VALUES(1,'jdbc','shop','orders','main');
CREATE TABLE lsm_tags (
	table_id INTEGER NOT NULL, 
	tag_name TEXT NOT NULL, 
	snapshot_id BIGINT NOT NULL, 
	created TEXT, 
	retained_millis BIGINT, 
	deleted BOOLEAN DEFAULT 0 NOT NULL, 
	PRIMARY KEY (table_id, tag_name), 
	FOREIGN KEY(table_id) REFERENCES lsm_tables (table_id) ON DELETE CASCADE
);
CREATE TABLE paimon_database_properties (
	catalog_key VARCHAR(255) NOT NULL, 
	database_name VARCHAR(255) NOT NULL, 
	property_key VARCHAR(255) NOT NULL, 
	property_value VARCHAR(1000), 
	PRIMARY KEY (catalog_key, database_name, property_key)
);
INSERT INTO "paimon_database_properties" VALUES('jdbc','shop','exists','true');
CREATE TABLE paimon_distributed_locks (
	lock_id VARCHAR(255) NOT NULL, 
	acquired_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP NOT NULL, 
	expire_time_seconds BIGINT DEFAULT 0 NOT NULL, 
	PRIMARY KEY (lock_id)
);
CREATE TABLE paimon_table_properties (
	catalog_key VARCHAR(255) NOT NULL, 
	database_name VARCHAR(255) NOT NULL, 
	table_name VARCHAR(255) NOT NULL, 
	property_key VARCHAR(255) NOT NULL, 
	property_value VARCHAR(1000), 
	PRIMARY KEY (catalog_key, database_name, table_name, property_key)
);
INSERT INTO "paimon_table_properties" VALUES('jdbc','shop','orders','bucket','2');
CREATE TABLE paimon_tables (
	catalog_key VARCHAR(255) NOT NULL, 
	database_name VARCHAR(255) NOT NULL, 
	table_name VARCHAR(255) NOT NULL, 
	PRIMARY KEY (catalog_key, database_name, table_name)
);
INSERT INTO "paimon_tables" VALUES('jdbc','shop','orders');
CREATE UNIQUE INDEX lsm_tables_name ON lsm_tables (catalog_key, database_name, table_name, branch);
CREATE INDEX ix_lsm_runs_dagster_run_id ON lsm_runs (dagster_run_id);
CREATE INDEX lsm_snapshots_time ON lsm_snapshots (time_millis);
CREATE INDEX lsm_snapshots_run ON lsm_snapshots (run_id, asset_key);
CREATE INDEX lsm_manifests_file ON lsm_manifests (table_id, file_name);
CREATE INDEX lsm_files_added ON lsm_files (table_id, added_by);
CREATE INDEX lsm_files_deleted ON lsm_files (table_id, deleted_by);
CREATE INDEX lsm_files_live ON lsm_files (table_id, partition_path, bucket, level, file_name) WHERE deleted_by IS NULL AND content = 'data';
CREATE INDEX lsm_file_edges_target ON lsm_file_edges (table_id, target_name);
CREATE INDEX lsm_file_edges_source ON lsm_file_edges (table_id, source_name);
CREATE INDEX lsm_tags_snapshot ON lsm_tags (table_id, snapshot_id);
CREATE INDEX lsm_inputs_dataset ON lsm_inputs (dataset, input_snapshot_id);
CREATE INDEX lsm_column_inputs_source ON lsm_column_inputs (dataset, input_column);
CREATE VIEW lsm_v_snapshots AS 
        SELECT t.database_name || '.' || t.table_name || CASE WHEN t.branch = 'main' THEN '' ELSE '@' || t.branch END AS table_name, s.snapshot_id, s.commit_kind, strftime('%Y-%m-%dT%H:%M:%fZ', s.time_millis / 1000.0, 'unixepoch') AS committed,
               s.state, s.total_record_count, s.delta_record_count, s.files_added, s.files_deleted,
               s.bytes_added, s.bytes_deleted, s.schema_id, s.operation, s.commit_user,
               s.run_id, s.asset_key, r.engine, r.kind AS run_kind, r.dagster_run_id, r.user_name
          FROM lsm_snapshots s
          JOIN lsm_tables t ON t.table_id = s.table_id
          LEFT JOIN lsm_runs r ON r.run_id = s.run_id AND r.asset_key = s.asset_key;
CREATE VIEW lsm_v_runs AS 
        SELECT r.run_id, r.asset_key, r.engine, r.kind, r.dagster_run_id, r.user_name,
               strftime('%Y-%m-%dT%H:%M:%fZ', COALESCE(r.started_millis, MIN(s.time_millis)) / 1000.0, 'unixepoch') AS started,
               strftime('%Y-%m-%dT%H:%M:%fZ', MAX(s.time_millis) / 1000.0, 'unixepoch') AS ended, COUNT(*) AS snapshots
          FROM lsm_runs r
          JOIN lsm_snapshots s ON s.run_id = r.run_id AND s.asset_key = r.asset_key
         GROUP BY r.run_id, r.asset_key, r.engine, r.kind, r.dagster_run_id, r.user_name,
                  r.started_millis;
CREATE VIEW lsm_v_live_files AS 
        SELECT t.database_name || '.' || t.table_name || CASE WHEN t.branch = 'main' THEN '' ELSE '@' || t.branch END AS table_name, f.partition_path, f.bucket, f.level, f.file_name, f.row_count,
               f.delete_row_count, f.file_size, f.min_sequence_number, f.max_sequence_number,
               f.schema_id, f.added_by, strftime('%Y-%m-%dT%H:%M:%fZ', f.creation_millis / 1000.0, 'unixepoch') AS created
          FROM lsm_files f JOIN lsm_tables t ON t.table_id = f.table_id
         WHERE f.deleted_by IS NULL AND f.content = 'data';
CREATE VIEW lsm_v_file_history AS 
        SELECT t.database_name || '.' || t.table_name || CASE WHEN t.branch = 'main' THEN '' ELSE '@' || t.branch END AS table_name, f.file_name, f.partition_path, f.bucket, f.level, f.content,
               f.row_count, f.file_size, f.added_by, strftime('%Y-%m-%dT%H:%M:%fZ', a.time_millis / 1000.0, 'unixepoch') AS added,
               f.deleted_by, strftime('%Y-%m-%dT%H:%M:%fZ', d.time_millis / 1000.0, 'unixepoch') AS deleted, d.commit_kind AS deleted_how, f.removed
          FROM lsm_files f
          JOIN lsm_tables t ON t.table_id = f.table_id
          LEFT JOIN lsm_snapshots a ON a.table_id = f.table_id AND a.snapshot_id = f.added_by
          LEFT JOIN lsm_snapshots d ON d.table_id = f.table_id AND d.snapshot_id = f.deleted_by;
CREATE VIEW lsm_v_manifests AS 
        SELECT t.database_name || '.' || t.table_name || CASE WHEN t.branch = 'main' THEN '' ELSE '@' || t.branch END AS table_name, m.snapshot_id, m.kind, l.file_name AS manifest_list,
               m.position, m.file_name AS manifest, m.file_size, m.added_file_count,
               m.deleted_file_count, m.min_bucket, m.max_bucket, m.min_level, m.max_level
          FROM lsm_manifests m
          JOIN lsm_tables t ON t.table_id = m.table_id
          JOIN lsm_manifest_lists l ON l.table_id = m.table_id AND l.snapshot_id = m.snapshot_id
                                   AND l.kind = m.kind;
CREATE VIEW lsm_v_compactions AS 
        SELECT t.database_name || '.' || t.table_name || CASE WHEN t.branch = 'main' THEN '' ELSE '@' || t.branch END AS table_name, c.snapshot_id, strftime('%Y-%m-%dT%H:%M:%fZ', s.time_millis / 1000.0, 'unixepoch') AS committed,
               c.partition_path, c.bucket, c.output_level, c.files_read, c.files_written,
               c.files_upgraded, c.rows_read, c.rows_written, c.bytes_read, c.bytes_written,
               s.run_id
          FROM lsm_compactions c
          JOIN lsm_tables t ON t.table_id = c.table_id
          JOIN lsm_snapshots s ON s.table_id = c.table_id AND s.snapshot_id = c.snapshot_id;
CREATE VIEW lsm_v_file_edges AS 
        SELECT t.database_name || '.' || t.table_name || CASE WHEN t.branch = 'main' THEN '' ELSE '@' || t.branch END AS table_name, e.snapshot_id, e.bucket, e.source_name, e.source_level,
               e.kind, e.target_name, e.target_level
          FROM lsm_file_edges e JOIN lsm_tables t ON t.table_id = e.table_id;
CREATE VIEW lsm_v_tags AS 
        SELECT t.database_name || '.' || t.table_name || CASE WHEN t.branch = 'main' THEN '' ELSE '@' || t.branch END AS table_name, g.tag_name, g.snapshot_id, g.created, g.retained_millis,
               g.deleted, strftime('%Y-%m-%dT%H:%M:%fZ', s.time_millis / 1000.0, 'unixepoch') AS committed, s.state AS snapshot_state,
               s.total_record_count
          FROM lsm_tags g
          JOIN lsm_tables t ON t.table_id = g.table_id
          LEFT JOIN lsm_snapshots s ON s.table_id = g.table_id
                                   AND s.snapshot_id = g.snapshot_id;
CREATE VIEW lsm_v_inputs AS 
        SELECT t.database_name || '.' || t.table_name || CASE WHEN t.branch = 'main' THEN '' ELSE '@' || t.branch END AS table_name, i.snapshot_id, i.dataset, i.input_snapshot_id,
               i.after_snapshot_id, i.input_version, i.role, s.run_id,
               strftime('%Y-%m-%dT%H:%M:%fZ', s.time_millis / 1000.0, 'unixepoch') AS committed
          FROM lsm_inputs i
          JOIN lsm_tables t ON t.table_id = i.table_id
          LEFT JOIN lsm_snapshots s ON s.table_id = i.table_id
                                   AND s.snapshot_id = i.snapshot_id;
COMMIT;
