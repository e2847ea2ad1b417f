-- +goose Up
-- R2: the move for which the owner stops acknowledging writes once it has not read the primary for its fence. It counts
-- only while it is the row's move: a binary of the previous version clears the claim and leaves this behind.
ALTER TABLE assignments ADD COLUMN promote_fence text;

-- The fence an agent's process runs with, in milliseconds. It counts for that process only: an agent of the previous
-- version registers without one and does not fence itself.
ALTER TABLE brokers ADD COLUMN promote_fence_ms bigint NOT NULL DEFAULT 0, ADD COLUMN promote_fence_process uuid;

ALTER TABLE moves ADD COLUMN on_source_loss text NOT NULL DEFAULT 'ask' CHECK (on_source_loss IN ('ask', 'auto', 'never')),
    ADD COLUMN promote_after_ms bigint NOT NULL DEFAULT 120000,
    ADD COLUMN promoted boolean NOT NULL DEFAULT false,  -- the source was gone: the copy became the partition without a freeze
    ADD COLUMN evidence jsonb;                           -- what was known when it was promoted

-- promote: a person gave the partition to a copy (R18). buried: an id that was ended before it claimed anything (R7).
ALTER TABLE moves DROP CONSTRAINT moves_kind_check;
ALTER TABLE moves ADD CONSTRAINT moves_kind_check CHECK (kind IN ('move', 'swap', 'replica', 'handoff', 'promote', 'buried'));

-- +goose Down
DELETE FROM moves WHERE kind IN ('promote', 'buried');
ALTER TABLE moves DROP CONSTRAINT moves_kind_check;
ALTER TABLE moves ADD CONSTRAINT moves_kind_check CHECK (kind IN ('move', 'swap', 'replica', 'handoff'));
ALTER TABLE moves DROP COLUMN on_source_loss, DROP COLUMN promote_after_ms, DROP COLUMN promoted, DROP COLUMN evidence;
ALTER TABLE brokers DROP COLUMN promote_fence_ms, DROP COLUMN promote_fence_process;
ALTER TABLE assignments DROP COLUMN promote_fence;
