-- +goose Up
-- What the autobalance has seen of a broker: a broker whose row is not like this any more is a reason for a pass. It is a
-- row's, not a notification's, so that nothing is lost when whoever should act on it is away. Older binaries never write it.
ALTER TABLE brokers ADD COLUMN balanced_as text NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE brokers DROP COLUMN balanced_as;
