-- +goose Up
-- When a plan was last carried out or waited for: retention counts a plan's age from there, so that a rebalance that takes
-- longer than plans are kept still has its own. Older binaries write none, and delete by when a plan was made.
ALTER TABLE plans ADD COLUMN used_at timestamptz;
UPDATE plans SET used_at = made_at;
ALTER TABLE plans ALTER COLUMN used_at SET DEFAULT now(), ALTER COLUMN used_at SET NOT NULL;
CREATE INDEX plans_used ON plans (used_at);

-- +goose Down
DROP INDEX plans_used;
ALTER TABLE plans DROP COLUMN used_at;
