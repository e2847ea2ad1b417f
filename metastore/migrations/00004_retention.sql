-- +goose Up
-- What retention looks for.
CREATE INDEX moves_ended ON moves (ended_at) WHERE outcome IS NOT NULL;
CREATE INDEX audit_at ON audit (at);

-- +goose Down
DROP INDEX moves_ended, audit_at;
