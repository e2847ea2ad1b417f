-- +goose Up
-- R1: which server's history a row was written in. Both functions may be called by any user. Where the whole row set is
-- read they stand in a sub-select, so that they run once a statement.
-- +goose StatementBegin
CREATE FUNCTION portage_timeline() RETURNS integer LANGUAGE sql STABLE AS $$
    SELECT ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::integer
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION portage_system() RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT system_identifier FROM pg_control_system()
$$;
-- +goose StatementEnd

-- Rows that are there are stamped as of now: what happened to this Postgres before is not known and is not held against
-- them. The defaults stamp what an agent of the previous version inserts.
ALTER TABLE assignments ADD COLUMN system_id bigint NOT NULL DEFAULT portage_system();
ALTER TABLE assignments ALTER COLUMN timeline SET DEFAULT portage_timeline();
UPDATE assignments SET timeline = portage_timeline();

-- The proof that a topic was deleted: without it an absent topic means a metastore that is older than the data.
CREATE TABLE deleted_topics (
    topic_id   uuid PRIMARY KEY,
    name       text NOT NULL,
    deleted_at timestamptz NOT NULL DEFAULT now(),
    deleted_by text NOT NULL DEFAULT ''
);
INSERT INTO deleted_topics (topic_id, name, deleted_at, deleted_by)
    SELECT DISTINCT ON (topic_id) topic_id, coalesce(topic, ''), at, actor FROM audit WHERE action = 'delete_topic' AND topic_id IS NOT NULL ORDER BY topic_id, id DESC
    ON CONFLICT DO NOTHING;
-- For whoever deletes without leaving one: an agent of the previous version, or an operator in psql.
-- +goose StatementBegin
CREATE FUNCTION portage_bury_topic() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO deleted_topics (topic_id, name, deleted_by) VALUES (OLD.id, OLD.name, session_user) ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER topics_deleted AFTER DELETE ON topics FOR EACH ROW EXECUTE FUNCTION portage_bury_topic();

-- A report counts only for the epoch and the storage it was made on.
ALTER TABLE load_reports ADD COLUMN epoch integer NOT NULL DEFAULT -1;
ALTER TABLE load_reports ADD COLUMN storage_instance uuid;

-- +goose Down
ALTER TABLE load_reports DROP COLUMN epoch, DROP COLUMN storage_instance;
DROP TRIGGER topics_deleted ON topics;
DROP FUNCTION portage_bury_topic;
DROP TABLE deleted_topics;
ALTER TABLE assignments ALTER COLUMN timeline SET DEFAULT 1;
ALTER TABLE assignments DROP COLUMN system_id;
DROP FUNCTION portage_timeline, portage_system;
