package native

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"portage/brokeragent/control"
	"portage/brokeragent/native/wire"
	"portage/internal/faults"
)

// Committed offsets live with their partition. Any broker relays the commits of simple consumers to the owners; nothing
// is kept on the way. A request that can not be settled within the park's bound is answered as a whole with
// COORDINATOR_LOAD_IN_PROGRESS, which every client retries (R27 v, R13).

// ownerCall is what one owner is asked.
type ownerCall func(ctx context.Context, owner string, url string, asked []control.OffsetCommit) (control.OffsetsAnswer, error)

// CommitOffsets implements wire.Broker.
func (b *Broker) CommitOffsets(ctx context.Context, group string, commits []wire.OffsetCommit) (int16, map[wire.PartitionRef]int16) {
	var asked []control.OffsetCommit
	for _, c := range commits {
		asked = append(asked, control.OffsetCommit{TopicID: c.TopicID, Topic: c.Topic, Partition: c.Partition, Offset: c.Offset, LeaderEpoch: c.LeaderEpoch, Metadata: c.Metadata})
	}
	whole, answers := b.relay(ctx, asked, func(ctx context.Context, owner, url string, part []control.OffsetCommit) (control.OffsetsAnswer, error) {
		if owner == b.cfg.BrokerID {
			return b.CommitHere(ctx, group, part), nil
		}
		return b.cfg.Peers.CommitOffsets(ctx, url, control.OffsetsRequest{Group: group, Offsets: part})
	})
	codes := map[wire.PartitionRef]int16{}
	for ref, a := range answers {
		codes[ref] = a.Code
	}
	return whole, codes
}

// FetchOffsets implements wire.Broker.
func (b *Broker) FetchOffsets(ctx context.Context, group string, partitions []wire.PartitionRef) (int16, map[wire.PartitionRef]wire.CommittedOffset) {
	all := partitions == nil
	if all {
		for _, t := range b.Routing().Topics {
			for i := range t.Partitions {
				partitions = append(partitions, wire.PartitionRef{Topic: t.Name, TopicID: t.ID, Partition: int32(i)})
			}
		}
	}
	var asked []control.OffsetCommit
	for _, ref := range partitions {
		asked = append(asked, control.OffsetCommit{TopicID: ref.TopicID, Topic: ref.Topic, Partition: ref.Partition})
	}
	whole, answers := b.relay(ctx, asked, func(ctx context.Context, owner, url string, part []control.OffsetCommit) (control.OffsetsAnswer, error) {
		if owner == b.cfg.BrokerID {
			return b.OffsetsHere(ctx, group, part), nil
		}
		return b.cfg.Peers.FetchOffsets(ctx, url, control.OffsetsRequest{Group: group, Offsets: part})
	})
	offsets := map[wire.PartitionRef]wire.CommittedOffset{}
	for ref, a := range answers {
		if all && a.Offset < 0 && a.Code == 0 {
			continue
		}
		offsets[ref] = wire.CommittedOffset{Offset: a.Offset, LeaderEpoch: a.LeaderEpoch, Metadata: a.Metadata, Code: a.Code}
	}
	return whole, offsets
}

// relay asks the owners until every partition is answered by an open owner or the bound passes.
func (b *Broker) relay(ctx context.Context, asked []control.OffsetCommit, call ownerCall) (int16, map[wire.PartitionRef]control.OffsetCommit) {
	answers := map[wire.PartitionRef]control.OffsetCommit{}
	deadline := time.Now().Add(b.cfg.Limits.ParkFor)
	callCtx, cancel := context.WithDeadline(ctx, deadline.Add(b.cfg.Limits.ParkFor))
	defer cancel()
	for {
		changed := b.rowsChangedSignal()
		byOwner := map[string][]control.OffsetCommit{}
		for _, a := range asked {
			ref := refOf(a)
			if _, done := answers[ref]; done {
				continue
			}
			owner, code := b.ownerOf(ref)
			if code != 0 {
				a.Code, a.Offset = code, -1
				answers[ref] = a
				continue
			}
			byOwner[owner] = append(byOwner[owner], a)
		}
		if len(byOwner) == 0 {
			return 0, answers
		}
		settled := b.askOwners(callCtx, byOwner, call)
		for _, a := range settled {
			answers[refOf(a)] = a
		}
		if len(answers) == len(asked) {
			return 0, answers
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			if !faults.Enforced("R27") {
				return 0, notLeader(asked, answers)
			}
			return kerr.CoordinatorLoadInProgress.Code, nil
		}
		// Not answered by an open owner: a move's flip or an opening is under way. Its row change is the signal; the
		// short bound covers an owner that opens without one.
		waitFor(ctx, changed, time.Now().Add(50*time.Millisecond))
	}
}

// notLeader is the answer partition by partition that rule R27 v forbids: the Java client fails on it.
func notLeader(asked []control.OffsetCommit, answers map[wire.PartitionRef]control.OffsetCommit) map[wire.PartitionRef]control.OffsetCommit {
	for _, a := range asked {
		if _, done := answers[refOf(a)]; !done {
			a.Code, a.Offset = kerr.NotLeaderForPartition.Code, -1
			answers[refOf(a)] = a
		}
	}
	return answers
}

// askOwners asks all owners at once and returns what open owners answered.
func (b *Broker) askOwners(ctx context.Context, byOwner map[string][]control.OffsetCommit, call ownerCall) []control.OffsetCommit {
	var mu sync.Mutex
	var settled []control.OffsetCommit
	var group sync.WaitGroup
	for owner, part := range byOwner {
		peer, _ := b.peer(owner)
		group.Go(func() {
			answer, err := call(ctx, owner, peer.ControlURL, part)
			if err != nil || answer.Code != 0 {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, a := range answer.Offsets {
				if a.Code != kerr.NotLeaderForPartition.Code {
					settled = append(settled, a)
				}
			}
		})
	}
	group.Wait()
	return settled
}

func refOf(a control.OffsetCommit) wire.PartitionRef {
	return wire.PartitionRef{Topic: a.Topic, TopicID: a.TopicID, Partition: a.Partition}
}

func (b *Broker) ownerOf(ref wire.PartitionRef) (string, int16) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	row := b.rows[key{ref.TopicID, ref.Partition}]
	if row == nil {
		return "", kerr.UnknownTopicOrPartition.Code
	}
	return row.Owner, 0
}

// CommitHere stores offsets of partitions that are open here; the others are answered with NOT_LEADER. While one is
// frozen the commit is parked like produce; past the bound the whole request is to be asked again.
func (b *Broker) CommitHere(ctx context.Context, group string, commits []control.OffsetCommit) control.OffsetsAnswer {
	answer := control.OffsetsAnswer{Offsets: make([]control.OffsetCommit, len(commits))}
	waits := make([]func(context.Context) error, len(commits))
	deadline := time.Now().Add(b.cfg.Limits.ParkFor)
	for i, c := range commits {
		answer.Offsets[i] = c
		wait, code := b.commitOne(ctx, group, c, deadline)
		if code == kerr.CoordinatorLoadInProgress.Code {
			return control.OffsetsAnswer{Code: code}
		}
		answer.Offsets[i].Code, waits[i] = code, wait
	}
	ctx, cancel := context.WithDeadline(ctx, time.Now().Add(b.cfg.Limits.ParkFor))
	defer cancel()
	for i, wait := range waits {
		if wait == nil {
			continue
		}
		err := wait(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			return control.OffsetsAnswer{Code: kerr.CoordinatorLoadInProgress.Code} // a full disk: ask again (R27 v)
		}
		if err != nil {
			answer.Offsets[i].Code = kerr.KafkaStorageError.Code
			if p := b.partition(key{commits[i].TopicID, commits[i].Partition}); p != nil {
				p.checkStorage()
			}
			continue
		}
		if p := b.partition(key{commits[i].TopicID, commits[i].Partition}); p == nil || p.fenced() {
			return control.OffsetsAnswer{Code: kerr.CoordinatorLoadInProgress.Code} // R2: kept here, and not acknowledged
		}
	}
	return answer
}

// commitOne writes one commit under the partition's lock, the lock of the freeze: none slips past a snapshot.
func (b *Broker) commitOne(ctx context.Context, group string, c control.OffsetCommit, deadline time.Time) (func(context.Context) error, int16) {
	p := b.partition(key{c.TopicID, c.Partition})
	if p == nil {
		return nil, kerr.NotLeaderForPartition.Code
	}
	for {
		p.mu.Lock()
		state, changed := p.state, p.changed
		if state == StateOpen && p.fenced() {
			p.mu.Unlock()
			return nil, kerr.CoordinatorLoadInProgress.Code // R2
		}
		if state == StateOpen {
			wait := p.offsets.Commit(p.serving, group, c.Offset, c.LeaderEpoch, c.Metadata)
			p.mu.Unlock()
			return wait, 0
		}
		p.mu.Unlock()
		if state != StateFrozen && state != StateOpening {
			return nil, kerr.NotLeaderForPartition.Code
		}
		if !waitFor(ctx, changed, deadline) {
			return nil, kerr.CoordinatorLoadInProgress.Code
		}
	}
}

// OffsetsHere reads offsets of partitions served here. Only an open owner answers (R13): a frozen one may have been
// flipped over without knowing it, a fenced one promoted over, and what it knows is then old.
func (b *Broker) OffsetsHere(ctx context.Context, group string, asked []control.OffsetCommit) control.OffsetsAnswer {
	answer := control.OffsetsAnswer{Offsets: make([]control.OffsetCommit, 0, len(asked))}
	for _, c := range asked {
		c.Offset, c.LeaderEpoch, c.Metadata, c.Code = -1, -1, "", kerr.NotLeaderForPartition.Code
		if p := b.partition(key{c.TopicID, c.Partition}); p != nil {
			p.mu.Lock()
			if p.state == StateOpen && !p.fenced() {
				c.Code = 0
				if entry, ok := p.offsets.Get(group); ok {
					c.Offset, c.LeaderEpoch, c.Metadata = entry.Offset, entry.LeaderEpoch, entry.Metadata
				}
			}
			p.mu.Unlock()
		}
		answer.Offsets = append(answer.Offsets, c)
	}
	return answer
}
