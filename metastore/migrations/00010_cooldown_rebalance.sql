-- +goose Up
-- The rebalance that a cooldown comes of: its own next plan goes on with those brokers. Older binaries name none.
ALTER TABLE cooldowns ADD COLUMN rebalance text NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE cooldowns DROP COLUMN rebalance;
