package worker

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"portage/brokeragent/agenttest"
	"portage/internal/operate"
	"portage/metastore"
	"portage/planner"
	"portage/workflows/protocol"
)

// at fills in the path of a route.
func at(call string) string {
	return strings.NewReplacer("{topic}", "orders", "{partition}", "0", "{broker}", "b2").Replace(call)
}

// The API from end to end, on one worker: its parts build on each other.
func TestTheOrdersOfAnOperatorOverHTTP(t *testing.T) {
	g := newRig(t)
	orders := g.fleet.CreateTopic("orders", 6, g.b1)
	for p := range int32(6) {
		g.b1.Write(orders, p, "one", "two")
	}
	t.Run("only who has the token is heard", g.only)
	t.Run("wrong orders are refused in a sentence", g.wrong)
	t.Run("what is asked about without changing anything", g.looks)
	t.Run("a plan is approved by its hash, steered, and undone", g.rebalances)
	t.Run("moves and swaps", g.movesAndSwaps)
	t.Run("what was done is counted", g.counted)
	t.Run("a decommission is refused, begun, cancelled, and found safe", g.decommissions)
	t.Run("every change stands in the audit", g.audited)
	t.Run("a silent system is told from a refusal", g.silent)
}

func (g *rig) on(t *testing.T) *rig {
	h := *g
	h.t = t
	return &h
}

func (g *rig) only(t *testing.T) {
	g = g.on(t)
	if status, raw := g.send("GET", "/openapi.yaml", "", "", ""); status != http.StatusOK || !strings.HasPrefix(string(raw), "openapi: 3.1") {
		t.Errorf("the description: %d %.60s", status, raw)
	}
	file := readOpenAPI(t)
	for path, methods := range file.Paths {
		for method, operation := range methods {
			if operation.Security != nil {
				continue
			}
			call := strings.ToUpper(method) + " " + path
			for _, authorization := range []string{"", "Bearer wrong", agenttest.Token, "Bearer " + agenttest.Token + " x"} {
				status, raw := g.send(strings.ToUpper(method), at(path), authorization, "", "no JSON")
				var r Refusal
				if err := json.Unmarshal(raw, &r); err != nil || status != http.StatusUnauthorized || r.Code != codeUnauthorized {
					t.Errorf("%s with %q: %d %s", call, authorization, status, raw)
				}
			}
			// With the token, the call itself is looked at.
			if status, raw := g.send(strings.ToUpper(method), at(path), "Bearer "+agenttest.Token, "", "no JSON"); status == http.StatusUnauthorized || method == "post" && status != http.StatusBadRequest {
				t.Errorf("%s with the token: %d %s", call, status, raw)
			}
		}
	}
	g.refusedWith(404, codeNoSuchCall, "POST /v1/everything", "{}")
	g.refusedWith(404, codeNoSuchCall, "DELETE /v1/rebalance", "")
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		answer, err := http.Get(g.metrics + path)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Errorf("%s: %v %v", path, answer, err)
		}
		answer.Body.Close()
	}
	if _, err := serveAPI(Config{HTTPListen: "127.0.0.1:0"}); err == nil || !strings.Contains(err.Error(), "token") {
		t.Errorf("without a token it listens: %v", err)
	}
}

func (g *rig) wrong(t *testing.T) {
	g = g.on(t)
	bodies := map[string]string{"POST /v1/moves": `,"topic":"orders","partition":0,"to":"b2"`, "POST /v1/swaps": `,"a":{"topic":"orders","partition":0},"b":{"topic":"orders","partition":1}`,
		"POST /v1/decommissions": `,"broker":"b2"`, "POST /v1/rebalance/undo": `,"undo":"some"`, "POST /v1/rebalance/approve": `,"hash":"0123456789"`,
		"POST /v1/rebalance/limits": `,"maxInFlight":1`, "POST /v1/rebalance/skip": `,"topic":"orders","partition":0`, "POST /v1/moves/{topic}/{partition}/tune": `,"limit":0`}
	for call := range calls {
		if !strings.HasPrefix(call, "POST") {
			continue
		}
		rest := bodies[call]
		g.refusedWith(400, operate.CodeReasonMissing, at(call), `{"by":"ci"`+rest+`}`)
		g.refusedWith(400, operate.CodeByMissing, at(call), `{"reason":"why"`+rest+`}`)
		g.refusedWith(400, operate.CodeReasonMissing, at(call), `{"by":"ci","reason":" \t"`+rest+`}`)
		g.refusedWith(400, operate.CodeByMissing, at(call), `{"by":" ","reason":"why"`+rest+`}`)
		for what, body := range map[string]string{"an unknown key": signed(`,"nonsense":1`), "a list": "[]", "something behind it": signed(rest) + "{}", "no text": `{"by":"ci\u0000","reason":"why"` + rest + `}`} {
			if r := answered[Refusal](g, 400, at(call), body); r.Code != codeBadRequest || r.Message == "" {
				t.Errorf("%s with %s: %+v", call, what, r)
			}
		}
		g.refusedWith(413, codeTooLarge, at(call), signed(`,"filler":"`+strings.Repeat("x", maxOrderBytes)+`"`))
	}
	for _, c := range [][2]string{
		{"POST /v1/moves", `,"topic":"orders","partition":-1,"to":"b2"`}, {"POST /v1/moves", `,"topic":"orders","partition":0`}, {"POST /v1/moves", `,"topic":"orders","partition":0,"to":"b2","plan":"p"`},
		{"POST /v1/swaps", `,"a":{"topic":"orders","partition":0},"b":{"topic":"orders","partition":0}`},
		{"POST /v1/decommissions", `,"broker":""`}, {"POST /v1/decommissions", `,"broker":"b2","minBrokers":0`}, {"POST /v1/decommissions", `,"broker":"b2","dryRun":true`}, {"POST /v1/decommissions", `,"broker":"b2","carried":{}`},
		{"POST /v1/rebalance", `,"maxInFlight":-1`}, {"POST /v1/rebalance", `,"hash":"short"`}, {"POST /v1/rebalance", `,"dryRun":true`}, {"POST /v1/rebalance", `,"carried":{}`},
		{"POST /v1/rebalance/undo", ``}, {"POST /v1/rebalance/approve", `,"hash":"short"`},
		{"POST /v1/moves/orders/x/cancel", ``}, {"POST /v1/moves/orders/0/tune", ``},
		{"GET /v1/moves?limit=0", ``}, {"GET /v1/moves?all=maybe", ``}, {"GET /v1/moves/orders/-1", ``}, {"GET /v1/plan?maxActions=-1", ``}, {"GET /v1/plan?countOnly=2", ``}, {"GET /v1/plan?maxActons=1", ``}, {"GET /v1/rebalance?all=true", ``},
		{"GET /v1/decommissions/b2/check?minBrokers=0", ``}, {"GET /v1/decommissions/b2/verdict?wait=2m", ``}, {"GET /v1/decommissions/b2/verdict?wait=soon", ``},
	} {
		g.refusedWith(400, codeBadRequest, c[0], signed(c[1]))
	}
	// Nothing runs, so there is nothing to steer.
	for call, code := range map[string]string{"GET /v1/rebalance": operate.CodeNoRebalance, "GET /v1/moves/orders/0": operate.CodeNoMove, "GET /v1/decommissions/b2": operate.CodeNoDecommission,
		"GET /v1/decommissions/b2/verdict": operate.CodeNoDecommission, "GET /v1/decommissions/b9/verdict": metastore.CodeUnknownBroker} {
		g.refusedWith(404, code, call, "")
	}
	for call, code := range map[string]string{"POST /v1/rebalance/pause": operate.CodeNoRebalance, "POST /v1/rebalance/resume": operate.CodeNoRebalance, "POST /v1/rebalance/cancel": operate.CodeNoRebalance,
		"POST /v1/moves/orders/0/cancel": operate.CodeNoMove, "POST /v1/decommissions/b2/cancel": operate.CodeNoDecommission} {
		g.refusedWith(404, code, call, signed(""))
	}
	g.refusedWith(404, metastore.CodeUnknownPartition, "POST /v1/rebalance/skip", signed(`,"topic":"nope","partition":7`))
	g.refusedWith(400, operate.CodeInvalidInput, "POST /v1/rebalance", signed(`,"deadline":"2020-01-01T00:00:00Z"`))
	// Refusals of a start come with its answer.
	g.refusedWith(409, metastore.CodeUnknownBroker, "POST /v1/moves", signed(`,"topic":"orders","partition":0,"to":"b9"`))
	g.refusedWith(409, metastore.CodeSameOwner, "POST /v1/swaps", signed(`,"a":{"topic":"orders","partition":0},"b":{"topic":"orders","partition":1}`))
	g.refusedWith(409, metastore.CodeUnknownPlan, "POST /v1/rebalance", signed(`,"hash":"0123456789"`))
	g.refusedWith(409, metastore.CodeUnknownPlan, "POST /v1/rebalance/undo", signed(`,"undo":"nothing"`))
}

func (g *rig) looks(t *testing.T) {
	g = g.on(t)
	if members := answered[[]operate.Member](g, 200, "GET /v1/members", ""); len(members) != 2 || members[0].Owned != 6 || members[1].Owned != 0 {
		t.Errorf("members %+v", members)
	}
	if scores := answered[[]operate.Score](g, 200, "GET /v1/scores", ""); len(scores) != 2 || scores[0].Owned <= scores[1].Owned {
		t.Errorf("scores %+v", scores)
	}
	if plan := answered[planner.Plan](g, 200, "GET /v1/plan?countOnly=true", ""); len(plan.Actions) != 3 {
		t.Errorf("the plan has %+v", plan.Actions)
	}
	if plan := answered[planner.Plan](g, 200, "GET /v1/plan?countOnly=true&maxActions=1", ""); len(plan.Actions) != 1 || !plan.Capped {
		t.Errorf("the capped plan has %+v", plan.Actions)
	}
	if moves := answered[[]metastore.Move](g, 200, "GET /v1/moves", ""); len(moves) != 0 {
		t.Errorf("moves %+v", moves)
	}
	check := answered[protocol.DrainCheck](g, 200, "GET /v1/decommissions/b2/check", "")
	if len(check.Refused) != 1 || check.Refused[0].Code != metastore.CodeTooFewBrokers {
		t.Errorf("the check says %+v", check)
	}
}

// whenRebalance waits until the rebalance is as asked.
func (g *rig) whenRebalance(what string, is func(protocol.RebalanceStatus) bool) (status protocol.RebalanceStatus) {
	g.t.Helper()
	agenttest.Eventually(g.t, what, func() bool {
		status = answered[protocol.RebalanceStatus](g, 200, "GET /v1/rebalance", "")
		return is(status)
	})
	return status
}

func (g *rig) rebalances(t *testing.T) {
	g = g.on(t)
	planned := answered[Planned](g, 200, "POST /v1/rebalance/plan", signed(""))
	if planned.Plan == nil || planned.Plan.Actions == 0 || len(planned.Plan.Hash) < 12 {
		t.Fatalf("planned %+v", planned)
	}
	hash := planned.Plan.Hash
	order := signed(fmt.Sprintf(`,"approve":true,"hash":%q`, hash)) // what was looked at, once it is approved
	waits := func(s protocol.RebalanceStatus) bool { return s.Phase == protocol.PhaseApproval }
	dropped := answered[RebalanceStarted](g, 202, "POST /v1/rebalance", order)
	g.whenRebalance("the first plan waits", waits)
	g.cancels("POST /v1/rebalance/cancel")
	first := answered[RebalanceStarted](g, 202, "POST /v1/rebalance", order)
	if first.RunID == dropped.RunID || first.Joined || first.RunID == "" {
		t.Errorf("the first %+v", first)
	}
	if again := answered[RebalanceStarted](g, 200, "POST /v1/rebalance", order); again.RunID != first.RunID || !again.Joined {
		t.Errorf("the repeat %+v after %+v", again.Started, first.Started)
	}
	g.refusedWith(409, operate.CodeAlreadyRunning, "POST /v1/rebalance", signed(`,"approve":true`))
	status := g.whenRebalance("the plan waits", waits)
	if status.Plan.Hash != hash || status.By != "ci" || status.Reason != "the test" {
		t.Errorf("what waits is %+v, planned was %s", status, hash)
	}
	g.refusedWith(409, operate.CodeNotNow, "POST /v1/rebalance/approve", signed(`,"hash":"0123456789"`))
	g.refusedWith(409, operate.CodeNotNow, "POST /v1/rebalance/resume", signed(""))
	answered[Done](g, 200, "POST /v1/rebalance/pause", signed(""))
	if status := answered[protocol.RebalanceStatus](g, 200, "GET /v1/rebalance", ""); status.Paused == nil || status.Paused.By != "ci" {
		t.Errorf("paused is %+v", status.Paused)
	}
	answered[Done](g, 200, "POST /v1/rebalance/resume", signed(""))
	answered[Done](g, 200, "POST /v1/rebalance/limits", signed(`,"maxInFlight":1`))
	if status := answered[protocol.RebalanceStatus](g, 200, "GET /v1/rebalance", ""); status.Limits.MaxInFlight != 1 {
		t.Errorf("the limits are %+v", status.Limits)
	}
	answered[Done](g, 200, "POST /v1/pause", signed(""))
	if pause := answered[protocol.Pause](g, 200, "GET /v1/pause", ""); !pause.Paused || pause.By != "ci" || pause.Reason != "the test" {
		t.Errorf("the fleet's pause is %+v", pause)
	}
	answered[Done](g, 200, "POST /v1/resume", signed(""))
	g.whenRebalance("the fleet's pause is over", func(s protocol.RebalanceStatus) bool { return s.Paused == nil })
	// A partition is left out by name; its action is then one that was skipped, if the plan had it at all.
	answered[Done](g, 200, "POST /v1/rebalance/skip", signed(`,"topic":"orders","partition":5`))
	answered[Done](g, 200, "POST /v1/rebalance/approve", signed(fmt.Sprintf(`,"hash":%q`, hash[:12])))
	done := g.whenRebalance("the plan is carried out", func(s protocol.RebalanceStatus) bool { return s.Phase == protocol.PhaseReport })
	if done.Counts.Moved == 0 || done.Counts.Failed != 0 {
		t.Errorf("done is %+v", done)
	}
	plan, err := g.fleet.Store.FindPlan(t.Context(), done.Plan.ID)
	if err != nil || plan.ApprovedBy == nil || *plan.ApprovedBy != "ci" {
		t.Errorf("the plan is recorded as %+v (%v)", plan, err)
	}
	if members := answered[[]operate.Member](g, 200, "GET /v1/members", ""); members[1].Owned != done.Counts.Moved {
		t.Errorf("members %+v after %d moves", members, done.Counts.Moved)
	}
	undo := fmt.Sprintf(`,"undo":%q`, done.ID)
	back := answeredUnder[RebalanceStarted](g, 202, "key", "POST /v1/rebalance/undo", signed(undo))
	g.whenRebalance("it is undone", func(s protocol.RebalanceStatus) bool { return s.ID == back.RunID && s.Phase == protocol.PhaseReport })
	if members := answered[[]operate.Member](g, 200, "GET /v1/members", ""); members[0].Owned != 6 {
		t.Errorf("members after the undo %+v", members)
	}
	// Nothing runs now, whatever ran before.
	g.refusedWith(404, operate.CodeNoRebalance, "POST /v1/rebalance/cancel", signed(""))
	g.refusedWith(404, operate.CodeNoRebalance, "POST /v1/rebalance/pause", signed(""))
	// Repeated under its key it is not done twice, although it has ended.
	if again := answeredUnder[RebalanceStarted](g, 200, "key", "POST /v1/rebalance/undo", signed(undo)); again.RunID != back.RunID {
		t.Errorf("the repeat is %+v after %+v", again.Started, back.Started)
	}
	if r := answeredUnder[Refusal](g, 409, "key", "POST /v1/rebalance", signed("")); r.Code != operate.CodeKeyReused {
		t.Errorf("the key for something else: %+v", r)
	}
}

func (g *rig) movesAndSwaps(t *testing.T) {
	g = g.on(t)
	order := signed(`,"topic":"orders","partition":0,"to":"b2"`)
	started := answeredUnder[MoveStarted](g, 202, "m1", "POST /v1/moves", order)
	if started.WorkflowID != "partition:orders:0" || started.Status.To != "b2" {
		t.Errorf("started %+v", started)
	}
	if again := answeredUnder[MoveStarted](g, 200, "m1", "POST /v1/moves", order); again.RunID != started.RunID {
		t.Errorf("the repeat %+v after %+v", again.Started, started.Started)
	}
	agenttest.Eventually(t, "it is moved", func() bool {
		view := answered[operate.MoveView](g, 200, "GET /v1/moves/orders/0", "")
		return !view.Running && view.Status.Committed
	})
	g.refusedWith(404, operate.CodeNoMove, "POST /v1/moves/orders/0/tune", signed(`,"limit":"1MiB"`))
	swap := answered[MoveStarted](g, 202, "POST /v1/swaps", signed(`,"a":{"topic":"orders","partition":0},"b":{"topic":"orders","partition":1}`))
	if len(swap.Status.Sides) != 2 {
		t.Errorf("the swap %+v", swap)
	}
	agenttest.Eventually(t, "they have changed places", func() bool {
		members := answered[[]operate.Member](g, 200, "GET /v1/members", "")
		return members[0].Owned == 5 && members[0].Inbound+members[0].Outbound+members[1].Inbound+members[1].Outbound == 0 && g.ownerOf(0) == "b1" && g.ownerOf(1) == "b2"
	})
	// A copy at a crawl is seen, tuned and taken back.
	orders, err := g.fleet.Store.FindTopic(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	g.b1.Write(orders, 5, slices.Repeat([]string{strings.Repeat("x", 512<<10)}, 4)...) // the first MiB passes at once, whatever the pace
	answered[MoveStarted](g, 202, "POST /v1/moves", signed(`,"topic":"orders","partition":5,"to":"b2","limit":"1KiB","lag":"1KiB"`))
	agenttest.Eventually(t, "it copies", func() bool {
		return answered[operate.MoveView](g, 200, "GET /v1/moves/orders/5", "").Status.Phase == protocol.PhaseCopy
	})
	if moves := answered[[]metastore.Move](g, 200, "GET /v1/moves", ""); len(moves) != 1 || moves[0].RequestedBy != "ci" || moves[0].Reason != "the test" {
		t.Errorf("moves %+v", moves)
	}
	answered[Done](g, 200, "POST /v1/moves/orders/5/tune", signed(`,"limit":"2KiB"`))
	g.cancels("POST /v1/moves/orders/5/cancel")
	if g.ownerOf(5) != "b1" {
		t.Error("the cancelled move has moved")
	}
}

func (g *rig) ownerOf(partition int32) string {
	g.t.Helper()
	row, err := g.fleet.Store.FindAssignment(g.t.Context(), "orders", partition)
	if err != nil {
		g.t.Fatal(err)
	}
	return row.Owner
}

func (g *rig) decommissions(t *testing.T) {
	g = g.on(t)
	r := g.refusedWith(409, metastore.CodeTooFewBrokers, "POST /v1/decommissions", signed(`,"broker":"b2"`))
	if len(r.Refusals) != 1 || r.Refusals[0].Code != metastore.CodeTooFewBrokers {
		t.Errorf("the refusal names %+v", r.Refusals)
	}
	if r := g.refusedWith(409, metastore.CodeTooFewBrokers, "GET /v1/decommissions/b2/verdict?wait=30s", ""); len(r.Refusals) != 1 {
		t.Errorf("the verdict names %+v", r.Refusals)
	}
	g.refusedWith(409, metastore.CodeUnknownBroker, "POST /v1/decommissions", signed(`,"broker":"b9"`))
	// Its moves start nothing while the limits are 0, so it can be seen to wait.
	order := signed(`,"broker":"b2","minBrokers":1,"maxInFlight":0`)
	first := answered[DecommissionStarted](g, 202, "POST /v1/decommissions", order)
	if again := answered[DecommissionStarted](g, 200, "POST /v1/decommissions", order); again.RunID != first.RunID || !again.Joined {
		t.Errorf("the repeat %+v after %+v", again.Started, first.Started)
	}
	if v := answered[operate.Verdict](g, 202, "GET /v1/decommissions/b2/verdict", ""); v.Safe || v.Phase == "" {
		t.Errorf("the verdict is %+v", v)
	}
	if status := answered[protocol.DecommissionStatus](g, 200, "GET /v1/decommissions/b2", ""); status.By != "ci" || status.Broker != "b2" {
		t.Errorf("the status is %+v", status)
	}
	g.cancels("POST /v1/decommissions/b2/cancel")
	g.refusedWith(409, operate.CodeCancelled, "GET /v1/decommissions/b2/verdict?wait=30s", "")
	// Whatever its last decommission ended as, a broker that drains is not told to take partitions.
	for _, drains := range []bool{true, false} {
		if err := g.fleet.Store.SetDraining(t.Context(), "b2", drains, "test", "by hand"); err != nil {
			t.Fatal(err)
		}
		if drains {
			g.refusedWith(409, operate.CodeStillDraining, "POST /v1/decommissions/b2/cancel", signed(""))
		} else {
			g.refusedWith(404, operate.CodeNoDecommission, "POST /v1/decommissions/b2/cancel", signed(""))
		}
	}
	// Now it may leave, and the verdict is waited for in one call.
	answered[DecommissionStarted](g, 202, "POST /v1/decommissions", signed(`,"broker":"b2","minBrokers":1`))
	var v operate.Verdict
	for deadline := time.Now().Add(time.Minute); !v.Safe && time.Now().Before(deadline); {
		status, raw := g.send("GET", "/v1/decommissions/b2/verdict?wait=30s", "Bearer "+agenttest.Token, "", "")
		if err := json.Unmarshal(raw, &v); err != nil || status != http.StatusOK && status != http.StatusAccepted {
			t.Fatalf("the verdict: %d %s", status, raw)
		}
	}
	if row, err := g.fleet.Store.FindBroker(t.Context(), "b2"); err != nil || !row.Removed || !v.Safe || v.Verdict != protocol.VerdictSafe {
		t.Errorf("the verdict is %+v, the row %+v (%v)", v, row, err)
	}
	if err := g.b2.Ended(); err == nil {
		t.Error("the removed agent ended without a word")
	}
	g.refusedWith(409, operate.CodeTooLate, "POST /v1/decommissions/b2/cancel", signed(""))
}

func (g *rig) audited(t *testing.T) {
	g = g.on(t)
	for call := range calls {
		if !strings.HasPrefix(call, "POST") {
			continue
		}
		var n int
		err := g.fleet.SQL.QueryRow(t.Context(), "SELECT count(*) FROM audit WHERE starts_with(action, 'http_') AND actor = 'ci' AND reason = 'the test' AND after->>'path' LIKE $1",
			strings.NewReplacer("{topic}", "%", "{partition}", "%", "{broker}", "%").Replace(strings.TrimPrefix(call, "POST "))).Scan(&n)
		if err != nil || n == 0 {
			t.Errorf("the audit has %d lines of %s (%v)", n, call, err)
		}
	}
}

func (g *rig) silent(t *testing.T) {
	g = g.on(t)
	g.temporal.Cut()
	g.refusedWith(503, operate.CodeTemporalDown, "GET /v1/rebalance", "")
	g.temporal.Mend()
	agenttest.Eventually(t, "the worker is heard again", func() bool {
		status, _ := g.send("GET", "/v1/rebalance", "Bearer "+agenttest.Token, "", "")
		return status == http.StatusOK
	})
	g.postgres.Cut()
	g.refusedWith(503, operate.CodeMetastoreDown, "GET /v1/members", "")
	g.refusedWith(503, operate.CodeMetastoreDown, "POST /v1/rebalance", signed(""))
	g.refusedWith(503, operate.CodeMetastoreDown, "GET /v1/decommissions/b2/verdict", "")
	g.unknown()
	g.postgres.Mend()
	agenttest.Eventually(t, "the metastore is heard again", func() bool {
		status, _ := g.send("GET", "/v1/members", "Bearer "+agenttest.Token, "", "")
		return status == http.StatusOK
	})
}

// cancels cancels something and waits until all is restored; asked again, it goes on waiting, and there is nothing to cancel after that.
func (g *rig) cancels(call string) {
	g.t.Helper()
	method, path, _ := strings.Cut(call, " ")
	again := false
	agenttest.Eventually(g.t, call, func() bool {
		status, raw := g.send(method, path, "Bearer "+agenttest.Token, "", signed(""))
		if status != http.StatusOK && status != http.StatusAccepted && !(again && status == http.StatusNotFound) {
			g.t.Fatalf("%s: %d %s", call, status, raw)
		}
		again = true
		return status != http.StatusAccepted
	})
}
