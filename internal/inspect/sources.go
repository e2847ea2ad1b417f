package inspect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"portage/brokeragent/control"
	"portage/metastore"
	"portage/workflows/protocol"
)

// Codes that only an inspection gives: what it sees from outside.
const (
	CodeOwnerUnreachable    = "owner_unreachable"
	CodeTemporalUnreachable = "temporal_unreachable"
	CodeNoWorker            = "no_worker"
	CodeClaimOrphaned       = "claim_orphaned"
)

// AskFor is how long one system may take to answer one question.
const AskFor = 3 * time.Second

// Sources are the systems an inspection asks. One that is nil is away, and its sentence says why.
type Sources struct {
	Store        *metastore.Store
	StoreAway    string
	Agents       *control.Client
	AgentsAway   string
	Temporal     client.Client
	TemporalAway string
	TaskQueue    string
}

// agentAnswer is what one agent said, or why it did not.
type agentAnswer struct {
	broker metastore.Broker
	status *control.AgentStatus
	at     time.Time     // when it was asked, halfway
	err    error         // why there is no status
	took   time.Duration // of the whole question
}

// askAgents asks every broker's agent at once, in the order of the brokers.
func (s Sources) askAgents(ctx context.Context, brokers []metastore.Broker) []agentAnswer {
	answers := make([]agentAnswer, len(brokers))
	var asked sync.WaitGroup
	for i, b := range brokers {
		answers[i].broker = b
		asked.Go(func() {
			ask, cancel := context.WithTimeout(ctx, AskFor)
			defer cancel()
			began := time.Now()
			status, err := s.Agents.Status(ask, b.ControlURL)
			answers[i].took = time.Since(began)
			answers[i].at = began.Add(answers[i].took / 2)
			if err != nil {
				answers[i].err = err
				return
			}
			answers[i].status = &status
		})
	}
	asked.Wait()
	return answers
}

// States of the workflow that holds a claim.
const (
	WorkflowRunning = "running"
	WorkflowMissing = "not known to Temporal"
	WorkflowUnknown = "unknown" // Temporal was not asked or did not answer
)

// workflowState asks Temporal how a run is; closed ones are named by how they ended.
func (s Sources) workflowState(ctx context.Context, workflowID, runID string) (string, *client.WorkflowExecutionDescription, error) {
	if s.Temporal == nil {
		return WorkflowUnknown, nil, errors.New(s.TemporalAway)
	}
	ask, cancel := context.WithTimeout(ctx, AskFor)
	defer cancel()
	described, err := s.Temporal.DescribeWorkflow(ask, workflowID, runID)
	var missing *serviceerror.NotFound
	switch {
	case errors.As(err, &missing):
		return WorkflowMissing, nil, nil
	case err != nil:
		return WorkflowUnknown, nil, fmt.Errorf("no answer from Temporal: %s", oneLine(err))
	case described.Status == enums.WORKFLOW_EXECUTION_STATUS_RUNNING:
		return WorkflowRunning, described, nil
	}
	return strings.ToLower(described.Status.String()), described, nil
}

// queryStatus asks the move itself; it needs a worker.
func (s Sources) queryStatus(ctx context.Context, workflowID, runID string) (*protocol.Status, error) {
	ask, cancel := context.WithTimeout(ctx, AskFor)
	defer cancel()
	value, err := s.Temporal.QueryWorkflow(ask, workflowID, runID, protocol.QueryStatus)
	if err != nil {
		return nil, err
	}
	var status protocol.Status
	return &status, value.Get(&status)
}

// orphaned reports whether a claim's workflow surely runs no more.
func orphaned(workflowState string) bool {
	return workflowState != WorkflowRunning && workflowState != WorkflowUnknown && workflowState != ""
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
