-- +goose Up
-- A swap is one claim on two partitions. Each side is a move of its own, with its own id and row; this names the swap they
-- are sides of (R32). A binary of the previous version sees two moves, and ends either alone: the other side then can not be
-- committed, and whoever aborts it next ends the rest.
ALTER TABLE moves ADD COLUMN swap text;
CREATE INDEX moves_swap ON moves (swap) WHERE swap IS NOT NULL;

-- +goose Down
DROP INDEX moves_swap;
ALTER TABLE moves DROP COLUMN swap;
