-- +goose Up
-- One fleet a schema. The id binds every agent's data folder to this metastore.
CREATE TABLE fleet (
    singleton  boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    id         uuid NOT NULL DEFAULT gen_random_uuid(),
    created_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO fleet DEFAULT VALUES;

CREATE TABLE brokers (
    id               text PRIMARY KEY,
    node_id          integer NOT NULL UNIQUE CHECK (node_id >= 0),
    control_url      text NOT NULL,
    client_host      text NOT NULL,
    client_port      integer NOT NULL,
    rack             text NOT NULL DEFAULT '',
    storage_instance uuid NOT NULL,
    process_instance uuid NOT NULL,
    draining         boolean NOT NULL DEFAULT false,
    removed          boolean NOT NULL DEFAULT false,      -- a tombstone (R30): never reused until an operator adds it again
    heartbeat        bigint NOT NULL DEFAULT 0,           -- a counter: liveness is never a comparison of clocks
    heartbeat_at     timestamptz NOT NULL DEFAULT now(),  -- for display only
    disk_total_bytes bigint NOT NULL DEFAULT 0,
    disk_free_bytes  bigint NOT NULL DEFAULT 0,
    capacity         jsonb NOT NULL DEFAULT '{}',         -- disk, net, weight overrides for the planner
    registered_at    timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE topics (
    id                 uuid PRIMARY KEY,
    name               text NOT NULL UNIQUE,
    partitions         integer NOT NULL CHECK (partitions > 0),
    replication_factor integer NOT NULL CHECK (replication_factor > 0),
    write_policy       text NOT NULL DEFAULT 'all',
    produce_policy     text NOT NULL DEFAULT 'hold' CHECK (produce_policy IN ('hold', 'reroute', 'refuse')),
    internal           boolean NOT NULL DEFAULT false,
    config             jsonb NOT NULL DEFAULT '{}',
    created_at         timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE assignments (
    topic_id         uuid NOT NULL REFERENCES topics (id) ON DELETE CASCADE,
    partition        integer NOT NULL CHECK (partition >= 0),
    owner            text NOT NULL REFERENCES brokers (id),
    owner_storage    uuid NOT NULL,                        -- R5: an owner on other storage is no owner
    target           text REFERENCES brokers (id),
    target_storage   uuid,
    epoch            integer NOT NULL DEFAULT 0,           -- Kafka's leader epoch
    version          bigint NOT NULL DEFAULT 1,            -- +1 at every change of this row or of its replicas (R31)
    state            text NOT NULL DEFAULT 'created' CHECK (state IN ('created', 'opened')),
    opened_epoch     integer NOT NULL DEFAULT -1,          -- the epoch of the last acknowledged OpenOwner
    opened_process   uuid,
    opened_end       bigint NOT NULL DEFAULT 0,            -- the log end the owner reported when it opened
    move_id          text,
    last_move        text,
    write_copies     integer NOT NULL DEFAULT 1,           -- W (R11: a column, never derived)
    seal_copies      integer NOT NULL DEFAULT 1,           -- smallest W in force since the last covered boundary
    boundary         bigint,
    pending_recovery text,
    timeline         integer NOT NULL DEFAULT 1,           -- R1: the Postgres timeline the row was written in
    changed_at       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (topic_id, partition),
    CHECK ((target IS NULL) = (target_storage IS NULL)),
    CHECK ((target IS NULL) OR (move_id IS NOT NULL))
);
CREATE INDEX assignments_owner ON assignments (owner);
CREATE INDEX assignments_target ON assignments (target) WHERE target IS NOT NULL;
CREATE INDEX assignments_move ON assignments (move_id) WHERE move_id IS NOT NULL;

CREATE TABLE replicas (
    topic_id         uuid NOT NULL,
    partition        integer NOT NULL,
    broker           text NOT NULL REFERENCES brokers (id),
    role             text NOT NULL CHECK (role IN ('owner', 'follower', 'learner', 'leaving', 'suspended')),
    storage_instance uuid NOT NULL,
    admitted         boolean NOT NULL DEFAULT false,
    PRIMARY KEY (topic_id, partition, broker),
    FOREIGN KEY (topic_id, partition) REFERENCES assignments (topic_id, partition) ON DELETE CASCADE
);

-- One row a move id, for ever: the proof of how a move ended (R6). A move id is never reused (R7).
CREATE TABLE moves (
    id             text PRIMARY KEY,
    kind           text NOT NULL CHECK (kind IN ('move', 'swap', 'replica', 'handoff')),
    topic_id       uuid NOT NULL,
    topic          text NOT NULL,
    partition      integer NOT NULL,
    from_broker    text NOT NULL,
    to_broker      text NOT NULL,
    workflow_id    text NOT NULL,
    run_id         text NOT NULL,
    requested_by   text NOT NULL DEFAULT '',
    reason         text NOT NULL DEFAULT '',
    claim_version  bigint NOT NULL,
    phase          text NOT NULL DEFAULT 'claimed',
    outcome        text CHECK (outcome IN ('committed', 'aborted')),
    outcome_by     text,
    outcome_reason text,
    commit_epoch   integer,
    frozen_end     bigint,
    bytes_copied   bigint NOT NULL DEFAULT 0,
    converged      boolean,
    frozen_ms      double precision,
    started_at     timestamptz NOT NULL DEFAULT now(),
    ended_at       timestamptz,
    finished_at    timestamptz
);
CREATE INDEX moves_partition ON moves (topic_id, partition, started_at DESC);
CREATE INDEX moves_running ON moves (started_at) WHERE finished_at IS NULL;

CREATE TABLE controller (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    epoch     bigint NOT NULL DEFAULT 0,
    holder    text NOT NULL DEFAULT ''
);
INSERT INTO controller DEFAULT VALUES;

CREATE TABLE settings (
    key    text PRIMARY KEY,
    value  jsonb NOT NULL,
    set_by text NOT NULL DEFAULT '',
    reason text NOT NULL DEFAULT '',
    set_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE load_reports (
    broker           text NOT NULL REFERENCES brokers (id),
    topic_id         uuid NOT NULL,
    partition        integer NOT NULL,
    process_instance uuid NOT NULL,      -- recognises a counter reset
    disk_bytes       bigint NOT NULL,
    produced_bytes   bigint NOT NULL,    -- cumulative since the process started; copies never count
    consumed_bytes   bigint NOT NULL,
    log_end          bigint NOT NULL,
    reported_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (broker, topic_id, partition)
);

CREATE TABLE cooldowns (
    subject text PRIMARY KEY,            -- "broker/b1" or "partition/orders/3"
    until   timestamptz NOT NULL,
    reason  text NOT NULL DEFAULT ''
);

-- Coordinator slots of consumer groups (R28). Simple consumers need none; the rows stand ready for membership.
CREATE TABLE coordinator_slots (
    slot   integer PRIMARY KEY CHECK (slot BETWEEN 0 AND 63),
    broker text REFERENCES brokers (id),
    epoch  integer NOT NULL DEFAULT 0
);
INSERT INTO coordinator_slots (slot) SELECT generate_series(0, 63);

CREATE TABLE audit (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at        timestamptz NOT NULL DEFAULT now(),
    action    text NOT NULL,
    actor     text NOT NULL,
    topic_id  uuid,
    topic     text,
    partition integer,
    move_id   text,
    reason    text NOT NULL DEFAULT '',
    before    jsonb,
    after     jsonb
);
CREATE INDEX audit_partition ON audit (topic_id, partition, id DESC);

-- Agents listen on one channel: "a <topic id> <partition>" for one row, "r" when the routing table must be read whole.
-- +goose StatementBegin
CREATE FUNCTION portage_notify_assignment() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('portage_rows', CASE TG_OP
        WHEN 'UPDATE' THEN 'a ' || NEW.topic_id || ' ' || NEW.partition
        ELSE 'r' END);
    RETURN NULL;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION portage_notify_routing() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('portage_rows', 'r');
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER assignments_changed AFTER INSERT OR UPDATE OR DELETE ON assignments
    FOR EACH ROW EXECUTE FUNCTION portage_notify_assignment();
CREATE TRIGGER topics_changed AFTER INSERT OR UPDATE OR DELETE ON topics
    FOR EACH STATEMENT EXECUTE FUNCTION portage_notify_routing();
-- Heartbeats touch none of these columns, so they wake nobody.
CREATE TRIGGER brokers_changed AFTER INSERT OR DELETE OR UPDATE OF client_host, client_port, control_url, removed, draining, process_instance
    ON brokers FOR EACH STATEMENT EXECUTE FUNCTION portage_notify_routing();

-- +goose Down
DROP TABLE audit, coordinator_slots, cooldowns, load_reports, settings, controller, moves, replicas, assignments, topics, brokers, fleet;
DROP FUNCTION portage_notify_assignment, portage_notify_routing;
