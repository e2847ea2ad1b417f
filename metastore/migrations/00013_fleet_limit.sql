-- +goose Up
-- How many moves may be in flight in the whole fleet for one of this plan to begin; NULL: any number, as older binaries plan.
-- While a plan is held, for the reason of which held is the code, none of its moves begins, and those that have take nobody's
-- place. Of a plan that is over none begins any more. limited_at is when that was decided: what is older is not written.
ALTER TABLE plans ADD COLUMN max_in_flight integer, ADD COLUMN held text NOT NULL DEFAULT '', ADD COLUMN over boolean NOT NULL DEFAULT false,
    ADD COLUMN limited_at timestamptz NOT NULL DEFAULT '-infinity';
CREATE INDEX moves_in_flight ON moves (plan) WHERE outcome IS NULL;

-- +goose Down
DROP INDEX moves_in_flight;
ALTER TABLE plans DROP COLUMN max_in_flight, DROP COLUMN held, DROP COLUMN over, DROP COLUMN limited_at;
