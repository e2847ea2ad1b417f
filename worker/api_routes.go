package worker

import (
	"portage/internal/operate"
	"portage/workflows/protocol"
)

// routes is the whole of /v1; openapi.yaml lists the same.
func (a *api) routes() map[string]call {
	return map[string]call{
		"GET /v1/plan":                              ask(planBound, a.plan, "countOnly", "maxActions"),
		"POST /v1/rebalance/plan":                   change(a, "rebalance_plan", parseRebalance, a.planRebalance),
		"POST /v1/rebalance":                        change(a, "rebalance_start", parseRebalance, a.startRebalance),
		"GET /v1/rebalance":                         ask(callBound, a.rebalance),
		"POST /v1/rebalance/undo":                   change(a, "rebalance_undo", parseUndo, a.startRebalance),
		"POST /v1/rebalance/approve":                change(a, "rebalance_approve", parseApprove, a.approve),
		"POST /v1/rebalance/limits":                 change(a, "rebalance_limits", strictly[operate.LimitsChange], a.limits),
		"POST /v1/rebalance/pause":                  change(a, "rebalance_pause", strictly[Signed], a.pauseRebalance),
		"POST /v1/rebalance/resume":                 change(a, "rebalance_resume", strictly[Signed], a.resumeRebalance),
		"POST /v1/rebalance/skip":                   change(a, "rebalance_skip", strictly[Skip], a.skip),
		"POST /v1/rebalance/cancel":                 change(a, "rebalance_cancel", strictly[Signed], a.cancelRebalance),
		"GET /v1/moves":                             ask(callBound, a.moves, "all", "limit"),
		"POST /v1/moves":                            change(a, "move_start", parseMove, a.startMove),
		"POST /v1/swaps":                            change(a, "swap_start", parseSwap, a.startSwap),
		"GET /v1/moves/{topic}/{partition}":         ask(callBound, a.move),
		"GET /v1/members":                           ask(callBound, a.members),
		"GET /v1/scores":                            ask(callBound, a.scores),
		"GET /v1/pause":                             ask(callBound, a.paused),
		"POST /v1/pause":                            change(a, "pause", strictly[Signed], a.pauseFleet),
		"POST /v1/resume":                           change(a, "resume", strictly[Signed], a.resumeFleet),
		"POST /v1/decommissions":                    change(a, "decommission_start", parseDecommission, a.startDecommission),
		"GET /v1/decommissions/{broker}":            ask(callBound, a.decommission),
		"POST /v1/moves/{topic}/{partition}/tune":   change(a, "move_tune", strictly[protocol.Tune], a.tuneMove),
		"POST /v1/moves/{topic}/{partition}/cancel": change(a, "move_cancel", strictly[Signed], a.cancelMove),
		"GET /v1/decommissions/{broker}/check":      ask(planBound, a.checkDecommission, "minBrokers"),
		"GET /v1/decommissions/{broker}/verdict":    ask(longest, a.verdict, "wait"),
		"POST /v1/decommissions/{broker}/cancel":    change(a, "decommission_cancel", strictly[Signed], a.cancelDecommission),
	}
}
