package activities

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"portage/metastore"
	"portage/planner"
)

// parsedPlans are the plans that rebalances of this worker carry out at the moment, so that a page of one does not cost the
// reading of all of it. A plan never changes under its id, so what is here is what is kept. The zero value is empty.
type parsedPlans struct {
	mu      sync.Mutex // guards everything below
	kept    []parsedPlan
	actions int // of all of them
}

type parsedPlan struct {
	id, hash string
	actions  []planner.Action
}

// mostParsed bounds the actions of all parsed plans together, at about a KiB each. The one that was read last stays however large
// it is.
const mostParsed = 100_000

// find is a plan's actions; false when they are not here.
func (p *parsedPlans) find(id, hash string) ([]planner.Action, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, plan := range p.kept {
		if plan.id == id && plan.hash == hash {
			copy(p.kept[1:], p.kept[:i])
			p.kept[0] = plan // the one that was used last comes first
			return plan.actions, true
		}
	}
	return nil, false
}

// add takes a plan in; those that were not used for longest make room.
func (p *parsedPlans) add(plan parsedPlan) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, other := range p.kept {
		if other.id == plan.id && other.hash == plan.hash {
			return // two have read it at once
		}
	}
	p.kept = append([]parsedPlan{plan}, p.kept...)
	p.actions += len(plan.actions)
	for p.actions > mostParsed && len(p.kept) > 1 {
		last := len(p.kept) - 1
		p.actions -= len(p.kept[last].actions)
		p.kept = p.kept[:last:last]
	}
}

// actionsOf are the actions of a kept plan; known is false when it is not kept, or not any more.
func (p *Plans) actionsOf(ctx context.Context, id string) (actions []planner.Action, known bool, err error) {
	hash, err := p.Store.PlanHash(ctx, id)
	if err != nil || hash == "" {
		return nil, false, err
	}
	if actions, known = p.parsed.find(id, hash); known {
		return actions, true, nil
	}
	row, err := p.Store.FindPlan(ctx, id)
	if err != nil || row == nil {
		return nil, false, err
	}
	plan, err := parsePlan(row)
	if err != nil {
		return nil, false, err
	}
	p.parsed.add(parsedPlan{id: id, hash: row.Hash, actions: plan.Actions})
	return plan.Actions, true, nil
}

func parsePlan(row *metastore.Plan) (*planner.Plan, error) {
	var plan planner.Plan
	if err := json.Unmarshal(row.Body, &plan); err != nil {
		return nil, fmt.Errorf("the kept plan %s can not be read: %w", row.ID, err)
	}
	return &plan, nil
}
