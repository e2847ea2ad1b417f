-- +goose Up
-- How many moves may be in flight in the whole fleet for one of this plan to begin; NULL: any number, as older binaries plan.
-- While a plan is held none of its moves begins, and those that have copy nothing, so they take nobody's place. Of a plan that
-- is over none begins any more.
ALTER TABLE plans ADD COLUMN max_in_flight integer, ADD COLUMN held boolean NOT NULL DEFAULT false, ADD COLUMN over boolean NOT NULL DEFAULT false;

-- +goose Down
ALTER TABLE plans DROP COLUMN max_in_flight, DROP COLUMN held, DROP COLUMN over;
