// Package operate is what an operator can ask of a fleet: plan, rebalance, move, swap, decommission, pause. The command line
// and the worker's HTTP API are two ways to say the same, so what is asked of Temporal, of the metastore and of the planner is
// here once, and nothing here prints.
//
// Every order is a workflow, an update of one, or a guarded write: whoever dies in between, it may be given again. An answer
// that did not come is [Unreachable], never a refusal. Sentences for people end in what they can do.
//
// Start with fleet.go; errors.go says how an order ends that was not carried out.
package operate
