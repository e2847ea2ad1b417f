//go:build portage_faults

package brokeragent_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"portage/brokeragent/agenttest"
	"portage/brokeragent/control"
	"portage/brokeragent/native"
)

// FuzzControl sends an agent any authenticated request. It must answer with JSON or a refusal of a known status, never by
// itself move ownership, and go on serving its partition.
func FuzzControl(f *testing.F) {
	fleet := agenttest.New(f)
	b1, b2 := fleet.Start("b1", native.Limits{}), fleet.Start("b2", native.Limits{})
	orders := fleet.CreateTopic("orders", 1, b1)
	b1.Write(orders, 0, "one")
	m := fleet.Claim(orders, 0, b2)
	paths := []string{"ensure", "copy", "freeze", "drain", "look", "abandon", "limit"}
	order := m.Order(control.PhaseEnsure)
	for _, body := range []any{
		control.EnsureRequest{Order: order, SourceURL: b1.URL(), Source: "b1", LimitPerSec: 1},
		control.CopyRequest{Order: order, SourceURL: b1.URL(), Source: "b1", LagBytes: 1, MaxPasses: 1},
		control.FreezeRequest{Order: order, Version: m.Claimed.Version},
		control.DrainRequest{Order: order, SourceURL: b1.URL(), Freeze: control.FreezeAnswer{Version: m.Claimed.Version, FrozenEnd: 1}},
		control.LookRequest{Order: order, Release: true},
		control.AbandonRequest{Order: order, Keep: true},
		map[string]float64{"bytesPerSec": -1},
	} {
		raw, err := json.Marshal(body)
		if err != nil {
			f.Fatal(err)
		}
		for i := range paths {
			f.Add(uint8(i), m.ID, raw, "")
		}
	}
	f.Add(uint8(7), m.ID, []byte(nil), "segment=0&from=0&to=10&size=5&topicId="+orders.ID.String()+"&partition=0&epoch=0")
	f.Add(uint8(7), "../../etc", []byte("{}"), "segment=-1&from=9223372036854775807&to=-9223372036854775808")
	f.Add(uint8(8), "", []byte(`{"group":"g","offsets":[{"topicId":"`+orders.ID.String()+`","topic":"orders","offset":-5}]}`), "")

	client := &http.Client{Timeout: 15 * time.Second} // more than any answer may take
	statuses := []int{200, 307, 400, 401, 404, 405, 409, 500, 503, 507}
	f.Fuzz(func(t *testing.T, which uint8, id string, body []byte, query string) {
		method, path := http.MethodPost, "/v1/offsets/commit"
		switch {
		case int(which)%9 < len(paths):
			path = "/v1/moves/" + id + "/" + paths[int(which)%9]
		case int(which)%9 == 7:
			method = http.MethodGet
			path = "/v1/copies/" + id + "/" + []string{"listing", "digest", "bytes"}[len(query)%3] + "?" + query
		}
		for _, agent := range []*agenttest.Agent{b1, b2} {
			req, err := http.NewRequestWithContext(t.Context(), method, agent.URL()+path, bytes.NewReader(body))
			if err != nil {
				return // no URL
			}
			req.Header.Set("Authorization", "Bearer "+agenttest.Token)
			resp, err := client.Do(req)
			if err != nil {
				t.Fatalf("%s %s: %v", method, path, err)
			}
			answer, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || !slices.Contains(statuses, resp.StatusCode) {
				t.Fatalf("%s %s is answered %d, %v", method, path, resp.StatusCode, err)
			}
			if strings.Contains(string(answer), "panic") {
				t.Fatalf("%s %s: %s", method, path, answer)
			}
		}
		row, err := fleet.Store.FindAssignment(t.Context(), "orders", 0)
		if err != nil || row.Owner != "b1" || row.Epoch != 0 {
			t.Fatalf("a request alone moved the partition: %+v, %v", row, err)
		}
	})
}
