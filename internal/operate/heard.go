package operate

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"

	"portage/workflows/protocol"
)

const (
	// answerBound is how long a worker may take to answer a query, or to take up what was started; one that takes longer is none.
	answerBound = 10 * time.Second
	// updateBound is how long an update may take that a worker has heard of.
	updateBound = 30 * time.Second
	// probeBound is how long Temporal itself may take to answer, when somebody does not.
	probeBound = 3 * time.Second
	// heardEvery is how often a wait for the end of a workflow asks whether a worker is there to end it.
	heardEvery = 5 * time.Second
)

// errNotRunning is the answer for a workflow that has ended. Temporal takes a cancel of one that was cancelled before, too, and its end is
// not that of what is asked for now.
var errNotRunning = errors.New("no such workflow is running")

// query asks a workflow for its status. Only a worker can answer, so this tells whether there is one.
func query[S any](ctx context.Context, f *Fleet, id, run string) (status S, err error) {
	asking, cancel := context.WithTimeout(ctx, answerBound)
	defer cancel()
	value, err := f.Temporal.QueryWorkflow(asking, id, run, protocol.QueryStatus)
	if err == nil {
		err = value.Get(&status)
	}
	if err != nil && !missing(err) {
		err = f.unheard(ctx, err)
	}
	return status, err
}

// unheard is the error of a call that needs a worker and was not answered: it tells a silent worker from a silent Temporal.
func (f *Fleet) unheard(ctx context.Context, cause error) error {
	var failed *serviceerror.QueryFailed
	var nobody *serviceerror.FailedPrecondition // "no poller seen for task queue recently"
	var early *serviceerror.WorkflowNotReady
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(cause, &failed):
		return because(cause, Failed, CodeFailed, "the workflow does not answer: %v", cause)
	case !errors.As(cause, &nobody) && !errors.As(cause, &early):
		asking, cancel := context.WithTimeout(ctx, probeBound)
		defer cancel()
		if _, err := f.Temporal.WorkflowService().GetSystemInfo(asking, &workflowservice.GetSystemInfoRequest{}); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return ofTemporal(err)
		}
	}
	return because(cause, Unreachable, CodeNoWorker, "no worker answers; start one with `portage worker`")
}

// heard reports whether a worker answers for a workflow.
func (f *Fleet) heard(ctx context.Context, s Started) error {
	_, err := query[any](ctx, f, s.WorkflowID, s.RunID)
	return err
}

// whileHeard waits for something that a worker has to do, as long as there is one.
func (f *Fleet) whileHeard(ctx context.Context, s Started, wait func(context.Context) error) error {
	waiting, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	ended := make(chan struct{})
	go func() { defer close(ended); done <- wait(waiting) }()
	defer func() { stop(); <-ended }()
	last, next := time.Now(), time.Second // the first is asked early, so that who waits in vain knows it soon
	for {
		select {
		case err := <-done:
			return err
		case <-time.After(next):
		}
		switch err := f.heard(ctx, s); {
		case err == nil:
			last, next = time.Now(), heardEvery
		case NoWorker(err) && time.Since(last) >= answerBound:
			return err
		default:
			next = time.Second // whatever else is the matter, the wait itself says
		}
	}
}

// current is the run of a workflow that runs; errNotRunning when it has ended.
func (f *Fleet) current(ctx context.Context, id string) (Started, error) {
	described, err := f.Temporal.DescribeWorkflow(ctx, id, "")
	switch {
	case err != nil:
		return Started{}, err
	case described.Status != enums.WORKFLOW_EXECUTION_STATUS_RUNNING:
		return Started{}, errNotRunning
	}
	return Started{WorkflowID: id, RunID: described.WorkflowExecution.RunID}, nil
}

// cancelRunning asks the workflow of an id that runs to cancel, and names it.
func (f *Fleet) cancelRunning(ctx context.Context, id, by, reason string) (Started, error) {
	s, err := f.current(ctx, id)
	if err != nil {
		return s, err
	}
	return s, f.cancel(ctx, id, by, reason)
}

// looked waits for something that was started only to be looked at. It is withdrawn when nobody takes it up.
func (f *Fleet) looked(ctx context.Context, s Started, wait func(context.Context) error) error {
	err := f.whileHeard(ctx, s, wait)
	if NoWorker(err) {
		f.withdraw(ctx, s)
		return because(err, Unreachable, CodeNoWorker, "no worker answers, so nothing was looked at and nothing stays queued; start one with `portage worker` and ask again")
	}
	return err
}

// withdraw ends what was started only to be looked at and nobody has taken up.
func (f *Fleet) withdraw(ctx context.Context, s Started) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeBound)
	defer cancel()
	_ = f.Temporal.TerminateWorkflow(ctx, s.WorkflowID, s.RunID, "no worker took it up, so it was withdrawn") // else it is looked at once there is a worker, and changes nothing
}
