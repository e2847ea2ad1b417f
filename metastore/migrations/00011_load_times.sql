-- +goose Up
-- When a broker last told which figures have changed, and when it had so told of each report of a sample, packed in the order of
-- the reports: rates are over the time between counters, not between samples, and a broker that does not answer makes none.
-- Older binaries write neither; theirs count as told with the heartbeat, and when the sample was taken.
ALTER TABLE brokers ADD COLUMN loads_at timestamptz;
ALTER TABLE load_samples ADD COLUMN reported bytea;

-- +goose Down
ALTER TABLE load_samples DROP COLUMN reported;
ALTER TABLE brokers DROP COLUMN loads_at;
