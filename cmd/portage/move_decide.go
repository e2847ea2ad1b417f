package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"golang.org/x/term"

	"portage/internal/operate"
	"portage/metastore"
	"portage/workflows/protocol"
)

// claimRef names a move that holds its partition.
type claimRef struct {
	ID string `arg:"" help:"The id of the move or the swap, its workflow id, or its partition as orders/3." name:"id"`
}

// find reads the move from the metastore, which knows it also when its workflow is gone.
func (r claimRef) find(ctx context.Context, store *metastore.Store) (*metastore.Move, error) {
	move, err := store.FindMove(ctx, r.ID)
	if err != nil {
		return nil, unreachable(err)
	}
	var p partitionArg
	if move == nil && p.UnmarshalText([]byte(r.ID)) == nil {
		row, err := store.FindAssignment(ctx, p.topic, p.number)
		if err != nil {
			return nil, unreachable(err)
		}
		if row != nil && row.Moving() != "" {
			if move, err = store.FindMove(ctx, row.Moving()); err != nil {
				return nil, unreachable(err)
			}
		}
	}
	if move == nil {
		sides, err := store.SwapSides(ctx, r.ID)
		if err != nil {
			return nil, unreachable(err)
		}
		if len(sides) > 0 {
			move = &sides[0]
		}
	}
	if move == nil {
		running, err := store.Moves(ctx, false, 10_000)
		if err != nil {
			return nil, unreachable(err)
		}
		for i := range running {
			if running[i].WorkflowID == r.ID {
				move = &running[i]
			}
		}
	}
	switch {
	case move == nil:
		return nil, fmt.Errorf("there is no move in progress by %q; `portage cluster moves` lists them", r.ID)
	case move.Ended() == metastore.OutcomeCommitted:
		return nil, fmt.Errorf("move %s is committed: %s/%d is on %s; move it back to undo", move.ID, move.Topic, move.Partition, move.ToBroker)
	case move.Ended() != "":
		return nil, fmt.Errorf("move %s has ended already (%s)", move.ID, move.Ended())
	}
	return move, nil
}

// decideBound is how long a worker may take to take up a decision.
const decideBound = 15 * time.Second

// decide sends a decision as an update and returns what the workflow says to it.
func decide(ctx context.Context, t client.Client, move *metastore.Move, name, reason string) error {
	ctx, cancel := context.WithTimeout(ctx, decideBound)
	defer cancel()
	handle, err := t.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{WorkflowID: move.WorkflowID, RunID: move.RunID, UpdateName: name,
		Args: []any{protocol.Decision{By: whoami(), Reason: reason}}, WaitForStage: client.WorkflowUpdateStageCompleted})
	if err == nil {
		err = handle.Get(ctx, nil)
	}
	var said *temporal.ApplicationError
	switch {
	case errors.As(err, &said):
		return errors.New(said.Message())
	case ctx.Err() != nil:
		return noWorker("no worker took the decision up within %s; start one with `portage worker` and ask again", decideBound)
	}
	return err
}

func noWorker(format string, args ...any) error {
	return &operate.Error{Kind: operate.Unreachable, Code: operate.CodeNoWorker, Message: fmt.Sprintf(format, args...)}
}

// runGone reports whether the workflow run that holds a claim is closed or unknown to Temporal. A Temporal that does not answer
// is neither.
func runGone(ctx context.Context, t client.Client, move *metastore.Move) (bool, error) {
	described, err := t.DescribeWorkflow(ctx, move.WorkflowID, move.RunID)
	var missing *serviceerror.NotFound
	switch {
	case errors.As(err, &missing):
		return true, nil
	case err != nil:
		return false, unreachable(err)
	}
	return described.Status != enums.WORKFLOW_EXECUTION_STATUS_RUNNING, nil
}

type movePromoteCmd struct {
	claimRef
	Yes    bool   `help:"Do it without asking."`
	Reason string `help:"Why, for the audit." required:""`
	storeFlags
	temporalFlags
}

// Run shows what would be missing and promotes the copy of a move whose source is gone.
func (c *movePromoteCmd) Run(ctx context.Context) error {
	store, err := c.read(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	move, err := c.find(ctx, store)
	if err != nil {
		return err
	}
	if move.Swap != nil {
		return fmt.Errorf("%s/%d is one side of a swap, and a swap never promotes: give it up with `portage move abandon %s --reason ...`, then promote a copy with `portage promote %s/%d`",
			move.Topic, move.Partition, *move.Swap, move.Topic, move.Partition)
	}
	t, err := c.dial(ctx)
	if err != nil {
		return err
	}
	defer t.Close()
	if gone, err := runGone(ctx, t, move); err != nil {
		return err
	} else if gone {
		return fmt.Errorf("the workflow run of move %s is gone, so nobody can promote its copy: end the move with `portage move abandon %s --reason ...`, then promote a copy with `portage promote %s/%d`",
			move.ID, move.ID, move.Topic, move.Partition)
	}
	view, err := (&operate.Fleet{Temporal: t}).Look(ctx, move.WorkflowID, move.RunID)
	if err != nil {
		return noWorker("no worker answers for move %s; start one with `portage worker`", move.ID)
	}
	p := view.Status.Promotion
	if p == nil {
		return fmt.Errorf("the source %s is not known to be gone, so there is nothing to promote; the move goes on by itself", move.FromBroker)
	}
	fmt.Printf("%s/%d: %s is gone. The copy on %s ends at %d; %s was last known to have %d, at %s.\nThe copy has %d committed offsets and %d producers of that moment.\nMind that %s.\n",
		move.Topic, move.Partition, move.FromBroker, move.ToBroker, p.StagedEnd, move.FromBroker, p.HighWatermark, p.SnapshotAt.Local().Format(time.DateTime), p.Groups, p.Producers, p.Warning)
	if !p.Eligible {
		return fmt.Errorf("the copy can not be promoted: %s; see `portage promote --help` for what is left then", p.Missing)
	}
	if !c.Yes && !confirmed(fmt.Sprintf("Promote the copy on %s?", move.ToBroker)) {
		return errors.New("nothing was promoted; say --yes to do it")
	}
	if err := decide(ctx, t, move, protocol.DecisionPromote, c.Reason); err != nil {
		return err
	}
	var result protocol.MoveResult
	if err := t.GetWorkflow(ctx, move.WorkflowID, move.RunID).Get(ctx, &result); err != nil {
		return operate.MoveOutcome(err)
	}
	if !result.Promoted {
		fmt.Printf("%s was back first: %s/%d was moved to %s with everything\n", move.FromBroker, move.Topic, move.Partition, move.ToBroker)
		return nil
	}
	fmt.Printf("%s/%d is on %s at epoch %d, ending at %d\n", move.Topic, move.Partition, move.ToBroker, result.Epoch, result.End)
	return nil
}

// confirmed asks on a terminal; elsewhere nobody can answer.
func confirmed(question string) bool {
	if !term.IsTerminal(int(os.Stdin.Fd())) || !term.IsTerminal(int(os.Stdout.Fd())) {
		return false
	}
	fmt.Print(question, " Type yes: ")
	line, _ := bufio.NewReader(os.Stdin).ReadString('\n')
	return strings.TrimSpace(line) == "yes"
}

type moveAbandonCmd struct {
	claimRef
	Reason string `help:"Why, for the audit." required:""`
	storeFlags
	temporalFlags
}

// Run ends a move before its commit: by its workflow, or, when its run is gone, by the guarded write itself.
func (c *moveAbandonCmd) Run(ctx context.Context) error {
	store, err := c.open(ctx, quiet())
	if err != nil {
		return err
	}
	defer store.Close()
	move, err := c.find(ctx, store)
	if err != nil {
		return err
	}
	t, err := c.dial(ctx)
	if err != nil {
		return err
	}
	defer t.Close()
	gone, err := runGone(ctx, t, move)
	if err != nil {
		return err
	}
	if gone {
		if _, err := store.AbortMove(ctx, move.ID, whoami(), c.Reason); err != nil {
			if refused, ok := metastore.RefusedWith(err); ok {
				return errors.New(refused.Reason)
			}
			return unreachable(err)
		}
		fmt.Printf("the workflow run of move %s is gone; its claim is taken back, %s\n", move.ID, staying(ctx, store, move))
		return nil
	}
	if err := decide(ctx, t, move, protocol.DecisionAbandon, c.Reason); err != nil {
		return err
	}
	var failure *temporal.ApplicationError
	err = t.GetWorkflow(ctx, move.WorkflowID, move.RunID).Get(ctx, nil)
	if errors.As(err, &failure) && failure.Type() == protocol.ErrAbandoned {
		fmt.Printf("%s; what was copied is kept in trash\n", staying(ctx, store, move))
		return nil
	}
	if err == nil {
		return fmt.Errorf("too late: %s/%d is committed and was moved; move it back to undo", move.Topic, move.Partition)
	}
	return operate.MoveOutcome(err)
}

// staying says where the partition of a move that was given up stays, or both of a swap.
func staying(ctx context.Context, store *metastore.Store, move *metastore.Move) string {
	sides := []metastore.Move{*move}
	if move.Swap != nil {
		if both, err := store.SwapSides(ctx, *move.Swap); err == nil {
			sides = both
		}
	}
	var stay []string
	for _, m := range sides {
		stay = append(stay, fmt.Sprintf("%s/%d stays on %s", m.Topic, m.Partition, m.FromBroker))
	}
	return strings.Join(stay, ", ")
}
