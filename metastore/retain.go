package metastore

import (
	"context"
	"fmt"
	"time"
)

// Retained is what one batch of retention deleted.
type Retained struct {
	Moves int64
	Audit int64
	Plans int64
}

// Retain deletes up to batch ended moves, lines of the audit and plans that are older than their settings. It may
// run anywhere at any time, also twice at once; the caller repeats it while a batch comes out full.
//
// An ended move's row is the proof of R6, so age alone never deletes it. Kept whatever their age are:
//   - moves without an outcome, and committed ones whose end nobody recorded yet: their workflow still repeats its writes,
//     and the row is its answer;
//   - moves that a partition's row names, as its claim or as its last move;
//   - the move that began a partition's present epoch: its destination may come back with nothing but an install marker of
//     it, and opens on this row alone. A marker of any other move never becomes the partition: of an earlier commit because
//     the epoch has passed, of an abort because R7 wants the version of the freeze, which the abort has raised.
//
// A plan is as old as its last use: a rebalance that runs for longer than plans are kept, over many nights or until somebody
// approves it, marks its plans as used meanwhile.
//
// Dies before or after: the next run finds what is left. The reply is lost: the same.
func (s *Store) Retain(ctx context.Context, batch int) (Retained, error) {
	var done Retained
	settings, err := s.Settings(ctx)
	if err != nil {
		return done, err
	}
	keep := map[string]time.Duration{}
	for _, setting := range settings {
		// A row that was not written by SetSetting must not delete more than SetSetting allows.
		for _, rule := range settingRules {
			if rule.key != setting.Key {
				continue
			}
			if _, err := rule.normal(setting.Value); err != nil {
				return done, fmt.Errorf("setting %s: %w; correct it with `portage config set`", setting.Key, err)
			}
		}
		switch setting.Key {
		case SettingMovesRetention, SettingAuditRetention, SettingPlansRetention:
			keep[setting.Key], _ = ParseRetention(setting.Value) // just checked
		}
	}
	if age := keep[SettingMovesRetention]; age > 0 {
		tag, err := s.pool.Exec(ctx, `DELETE FROM moves WHERE id IN (SELECT m.id FROM moves m
			WHERE m.outcome IS NOT NULL AND m.ended_at < now() - $1::interval
				AND (m.outcome = 'aborted' OR m.finished_at < now() - $1::interval)
				AND NOT EXISTS (SELECT FROM assignments a WHERE a.move_id = m.id)
				AND NOT EXISTS (SELECT FROM assignments a WHERE a.topic_id = m.topic_id AND a.partition = m.partition AND (a.last_move = m.id OR m.commit_epoch >= a.epoch))
			ORDER BY m.ended_at LIMIT $2 FOR UPDATE SKIP LOCKED)`, age, batch)
		if err != nil {
			return done, fmt.Errorf("delete old moves: %w", err)
		}
		done.Moves = tag.RowsAffected()
	}
	if age := keep[SettingAuditRetention]; age > 0 {
		tag, err := s.pool.Exec(ctx, `DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE at < now() - $1::interval ORDER BY at LIMIT $2 FOR UPDATE SKIP LOCKED)`, age, batch)
		if err != nil {
			return done, fmt.Errorf("delete old lines of the audit: %w", err)
		}
		done.Audit = tag.RowsAffected()
	}
	if age := keep[SettingPlansRetention]; age > 0 {
		tag, err := s.pool.Exec(ctx, `DELETE FROM plans WHERE id IN (SELECT id FROM plans WHERE used_at < now() - $1::interval ORDER BY used_at LIMIT $2 FOR UPDATE SKIP LOCKED)`, age, batch)
		if err != nil {
			return done, fmt.Errorf("delete old plans: %w", err)
		}
		done.Plans = tag.RowsAffected()
	}
	return done, nil
}
