package inspect

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"

	"portage/worker"
	"portage/workflows/protocol"
)

func (d Doctor) examineTemporal(ctx context.Context) []Check {
	var c checks
	if d.Temporal == nil {
		c.fail("temporal", "start it, or correct --temporal-address", "%s", d.TemporalAway)
		return c
	}
	ask, cancel := context.WithTimeout(ctx, AskFor)
	defer cancel()
	service := d.Temporal.WorkflowService()
	info, err := service.GetSystemInfo(ask, &workflowservice.GetSystemInfoRequest{})
	if err != nil {
		c.fail("temporal", "start it, or correct --temporal-address", "%s", oneLine(err))
		return c
	}
	c.ok("temporal", "answers, server %s", info.GetServerVersion())
	space, err := service.DescribeNamespace(ask, &workflowservice.DescribeNamespaceRequest{Namespace: d.Namespace})
	if err != nil {
		c.fail("temporal namespace", fmt.Sprintf("create it (`temporal operator namespace create %s`), or correct --temporal-namespace", d.Namespace), "%s: %s", d.Namespace, oneLine(err))
		return c
	}
	c.ok("temporal namespace", "%s, closed workflows are kept for %s", d.Namespace, space.GetConfig().GetWorkflowExecutionRetentionTtl().AsDuration())
	d.examineAttributes(ask, &c)
	d.examineQueue(ask, &c, service)
	switch state, _, err := d.workflowState(ask, protocol.SupervisorWorkflowID(d.TaskQueue), ""); {
	case err != nil:
		c.warn("supervisor", "look at Temporal's own health", "%s", oneLine(err))
	case state != WorkflowRunning:
		c.warn("supervisor", "start a worker, which starts it", "workflow %s is %s: claims that a move left behind are not taken back by themselves", protocol.SupervisorWorkflowID(d.TaskQueue), state)
	default:
		c.ok("supervisor", "running")
	}
	switch state, _, err := d.workflowState(ask, protocol.AutobalanceWorkflowID(d.TaskQueue), ""); {
	case err != nil:
		c.warn("autobalance", "look at Temporal's own health", "%s", oneLine(err))
	case state != WorkflowRunning:
		c.warn("autobalance", "start a worker, which starts it", "workflow %s is %s: the fleet does not balance itself, whatever its settings say", protocol.AutobalanceWorkflowID(d.TaskQueue), state)
	default:
		c.ok("autobalance", "running; `portage cluster autobalance` says what it does")
	}
	return c
}

func (d Doctor) examineAttributes(ctx context.Context, c *checks) {
	missing, err := worker.MissingAttributes(ctx, d.Temporal, d.Namespace)
	switch {
	case err != nil:
		c.fail("search attributes", "rename or remove the attribute that is in the way", "%s", oneLine(err))
	case len(missing) > 0:
		var names []string
		for name := range missing {
			names = append(names, name)
		}
		sort.Strings(names)
		c.fail("search attributes", "start a worker, which registers them", "missing: %s", strings.Join(names, ", "))
	default:
		c.ok("search attributes", "all registered")
	}
}

// polledWithin is how long ago a poller may have asked to count as there: a long poll lasts a minute.
const polledWithin = 2 * time.Minute

func (d Doctor) examineQueue(ctx context.Context, c *checks, service workflowservice.WorkflowServiceClient) {
	polling := map[string]bool{}
	for _, kind := range []enums.TaskQueueType{enums.TASK_QUEUE_TYPE_WORKFLOW, enums.TASK_QUEUE_TYPE_ACTIVITY} {
		queue, err := d.Temporal.DescribeTaskQueue(ctx, d.TaskQueue, kind)
		if err != nil {
			c.fail("workers", "look at Temporal's own health", "%s", oneLine(err))
			return
		}
		recent := 0
		for _, p := range queue.GetPollers() {
			if time.Since(p.GetLastAccessTime().AsTime()) < polledWithin {
				recent++
				polling[p.GetIdentity()] = true
			}
		}
		if recent == 0 {
			c.fail("workers", "start one: `portage worker`", "nobody polls task queue %s for %s tasks", d.TaskQueue, strings.ToLower(kind.String()))
			return
		}
	}
	c.ok("workers", "%d on task queue %s", len(polling), d.TaskQueue)
}
