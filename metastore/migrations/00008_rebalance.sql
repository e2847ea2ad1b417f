-- +goose Up
-- What plans were made, of what, and why. A plan's body is what was planned, compressed JSON; the snapshot it was made of
-- is kept beside it. Workflows carry id, hash and a cursor.
CREATE TABLE plans (
    id           text PRIMARY KEY,
    rebalance    text NOT NULL DEFAULT '',     -- the first run id of the workflow it was made for; empty: only a plan
    hash         text NOT NULL,
    actions      integer NOT NULL,
    bytes        bigint NOT NULL,
    body         bytea NOT NULL,
    snapshot     bytea,
    requested_by text NOT NULL DEFAULT '',
    reason       text NOT NULL DEFAULT '',
    approved_by  text,
    approved_at  timestamptz,
    made_at      timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX plans_hash ON plans (hash, made_at DESC);
CREATE INDEX plans_rebalance ON plans (rebalance, made_at) WHERE rebalance <> '';
CREATE INDEX plans_made ON plans (made_at);

-- How the actions of a plan ended that moved nothing, and the others too, for people; the proof of a move is its own row.
CREATE TABLE plan_actions (
    plan      text NOT NULL REFERENCES plans (id) ON DELETE CASCADE,
    seq       integer NOT NULL,
    topic     text NOT NULL,
    partition integer NOT NULL,
    state     text NOT NULL,
    code      text NOT NULL DEFAULT '',
    reason    text NOT NULL DEFAULT '',
    at        timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (plan, seq)
);

-- Which action of which plan a move carries out.
ALTER TABLE moves ADD COLUMN plan text, ADD COLUMN plan_seq integer;
CREATE INDEX moves_plan ON moves (plan, plan_seq) WHERE plan IS NOT NULL;

-- What the owners' reports said at each pass, so that the windows of loads survive every restart. One row a pass: reports
-- of a million partitions are some 30 MiB, compressed.
CREATE TABLE load_samples (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at      timestamptz NOT NULL,
    reports bytea NOT NULL
);

-- R30: records that exist nowhere else keep their broker in the fleet.
ALTER TABLE brokers ADD COLUMN quarantined_copies integer NOT NULL DEFAULT 0;

-- R31: whoever decides on a partition's copies guards with the version of its row, so every change of a copy raises it, in
-- the same transaction and whoever makes it.
-- +goose StatementBegin
CREATE FUNCTION portage_bump_assignment() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE assignments SET version = version + 1, changed_at = now(), timeline = portage_timeline(), system_id = portage_system()
        WHERE (topic_id, partition) IN ((OLD.topic_id, OLD.partition), (NEW.topic_id, NEW.partition));
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER replicas_bump AFTER INSERT OR UPDATE OR DELETE ON replicas FOR EACH ROW EXECUTE FUNCTION portage_bump_assignment();

-- +goose Down
DROP TRIGGER replicas_bump ON replicas;
DROP FUNCTION portage_bump_assignment;
ALTER TABLE brokers DROP COLUMN quarantined_copies;
DROP TABLE load_samples;
DROP INDEX moves_plan;
ALTER TABLE moves DROP COLUMN plan, DROP COLUMN plan_seq;
DROP TABLE plan_actions, plans;
