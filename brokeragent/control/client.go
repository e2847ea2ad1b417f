package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/google/uuid"

	"portage/internal/faults"
)

// Client calls agents. An *Error is the agent's own refusal; any other error means that no answer came, so that the
// request may or may not have been carried out.
type Client struct {
	http  *http.Client
	token string
}

// NewClient makes a client with the fleet's token. Deadlines come from the contexts.
func NewClient(token string) *Client {
	return &Client{token: token, http: &http.Client{Transport: &http.Transport{
		DialContext:         dial,
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     90 * time.Second,
		ReadBufferSize:      64 << 10,
		DisableCompression:  true,
	}}}
}

func dial(ctx context.Context, network, addr string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: 2 * time.Second, KeepAlive: 15 * time.Second}
	return dialer.DialContext(ctx, network, faults.Dial(addr))
}

// Bounds of one call. A participant that hangs must not hang its caller: an answer that does not come in time is unknown
// and asked for again, and every call may be repeated.
const (
	quickBound  = 10 * time.Second
	ensureBound = time.Minute // reads and checks what is staged; a repeat joins it
	drainBound  = 40 * time.Second
)

// Ensure prepares the destination.
func (c *Client) Ensure(ctx context.Context, agentURL string, req EnsureRequest) (EnsureAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, ensureBound)
	defer cancel()
	return post[EnsureAnswer](ctx, c, "Ensure", agentURL, "/v1/moves/"+url.PathEscape(req.MoveID)+"/ensure", req)
}

// StartCopy starts or joins the copy.
func (c *Client) StartCopy(ctx context.Context, agentURL string, req CopyRequest) (SessionStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, quickBound)
	defer cancel()
	return post[SessionStatus](ctx, c, "StartCopy", agentURL, "/v1/moves/"+url.PathEscape(req.MoveID)+"/copy", req)
}

// Session reads the destination's progress; it waits up to wait for a change after seq.
func (c *Client) Session(ctx context.Context, agentURL, moveID string, seq int64, wait time.Duration) (SessionStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, wait+quickBound)
	defer cancel()
	return get[SessionStatus](ctx, c, "Session", agentURL, fmt.Sprintf("/v1/moves/%s?seq=%d&wait=%s", url.PathEscape(moveID), seq, wait))
}

// Freeze parks writes at the source.
func (c *Client) Freeze(ctx context.Context, agentURL string, req FreezeRequest) (FreezeAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, quickBound)
	defer cancel()
	return post[FreezeAnswer](ctx, c, "Freeze", agentURL, "/v1/moves/"+url.PathEscape(req.MoveID)+"/freeze", req)
}

// Drain fetches the tail and installs the copy.
func (c *Client) Drain(ctx context.Context, agentURL string, req DrainRequest) (DrainAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, drainBound)
	defer cancel()
	return post[DrainAnswer](ctx, c, "Drain", agentURL, "/v1/moves/"+url.PathEscape(req.MoveID)+"/drain", req)
}

// Promote installs the staged copy of a move whose source is gone.
func (c *Client) Promote(ctx context.Context, agentURL string, req PromoteRequest) (PromoteAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, ensureBound)
	defer cancel()
	return post[PromoteAnswer](ctx, c, "Promote", agentURL, "/v1/moves/"+url.PathEscape(req.MoveID)+"/promote", req)
}

// Look tells an agent to act on the row.
func (c *Client) Look(ctx context.Context, agentURL string, req LookRequest) (PartitionStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, quickBound)
	defer cancel()
	return post[PartitionStatus](ctx, c, "Look", agentURL, "/v1/moves/"+url.PathEscape(req.MoveID)+"/look", req)
}

// Abandon ends the destination's part of an aborted move.
func (c *Client) Abandon(ctx context.Context, agentURL string, req AbandonRequest) error {
	ctx, cancel := context.WithTimeout(ctx, quickBound)
	defer cancel()
	_, err := post[struct{}](ctx, c, "Abandon", agentURL, "/v1/moves/"+url.PathEscape(req.MoveID)+"/abandon", req)
	return err
}

// SetLimit changes the throttle of a running copy; 0 lifts it.
func (c *Client) SetLimit(ctx context.Context, agentURL, moveID string, bytesPerSec float64) error {
	ctx, cancel := context.WithTimeout(ctx, quickBound)
	defer cancel()
	_, err := post[struct{}](ctx, c, "SetLimit", agentURL, "/v1/moves/"+url.PathEscape(moveID)+"/limit", map[string]float64{"bytesPerSec": bytesPerSec})
	return err
}

// Status reads an agent's state.
func (c *Client) Status(ctx context.Context, agentURL string) (AgentStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, quickBound)
	defer cancel()
	return get[AgentStatus](ctx, c, "Status", agentURL, "/v1/status")
}

// Rows reads the rows an agent holds.
func (c *Client) Rows(ctx context.Context, agentURL string) (HeldRows, error) {
	ctx, cancel := context.WithTimeout(ctx, quickBound)
	defer cancel()
	return get[HeldRows](ctx, c, "Rows", agentURL, "/v1/rows")
}

// Partition reads one partition's state at an agent.
func (c *Client) Partition(ctx context.Context, agentURL string, topicID uuid.UUID, partition int32) (PartitionStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, quickBound)
	defer cancel()
	return get[PartitionStatus](ctx, c, "Partition", agentURL, fmt.Sprintf("/v1/partitions/%s/%d", topicID, partition))
}

// PurgeTrash deletes retained copies whose safety the owners confirm; it returns how many were deleted and kept.
func (c *Client) PurgeTrash(ctx context.Context, agentURL string) (PurgeAnswer, error) {
	return post[PurgeAnswer](ctx, c, "PurgeTrash", agentURL, "/v1/trash/purge", TrashPurge{})
}

// PurgeCopy deletes one former copy, whatever its owner says.
func (c *Client) PurgeCopy(ctx context.Context, agentURL, id string) error {
	_, err := post[PurgeAnswer](ctx, c, "PurgeTrash", agentURL, "/v1/trash/purge", TrashPurge{ID: id, AcceptLoss: true})
	return err
}

// Retained lists what a broker keeps of partitions it does not serve.
func (c *Client) Retained(ctx context.Context, agentURL string) (RetainedCopies, error) {
	ctx, cancel := context.WithTimeout(ctx, quickBound)
	defer cancel()
	return get[RetainedCopies](ctx, c, "Retained", agentURL, "/v1/retained")
}

// HoldTrash keeps a former copy, or lets it go.
func (c *Client) HoldTrash(ctx context.Context, agentURL string, req HoldRequest) error {
	ctx, cancel := context.WithTimeout(ctx, quickBound)
	defer cancel()
	_, err := post[struct{}](ctx, c, "HoldTrash", agentURL, "/v1/trash/hold", req)
	return err
}

// PurgeQuarantine deletes a quarantined copy.
func (c *Client) PurgeQuarantine(ctx context.Context, agentURL string, req QuarantinePurge) error {
	_, err := post[struct{}](ctx, c, "PurgeQuarantine", agentURL, "/v1/quarantine/purge", req)
	return err
}

// ExportQuarantine streams the records that only a quarantined copy holds, one JSON object a line. The caller closes it.
func (c *Client) ExportQuarantine(ctx context.Context, agentURL, id string) (io.ReadCloser, error) {
	resp, err := c.do(ctx, "ExportQuarantine", http.MethodGet, agentURL, "/v1/quarantine/"+url.PathEscape(id)+"/records", nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// PurgeAnswer is the result of a purge.
type PurgeAnswer struct {
	Deleted int      `json:"deleted"`
	Kept    []string `json:"kept,omitempty"` // with the reason each was kept
}

// Listing reads what a source shows of a partition.
func (c *Client) Listing(ctx context.Context, agentURL string, s Subject) (Listing, error) {
	ctx, cancel := context.WithTimeout(ctx, quickBound)
	defer cancel()
	return get[Listing](ctx, c, "Listing", agentURL, copyPath(s, "listing"))
}

// SegmentDigest asks the source for the digest of a segment's first size bytes.
func (c *Client) SegmentDigest(ctx context.Context, agentURL string, s Subject, base, size int64) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, quickBound)
	defer cancel()
	answer, err := get[map[string]string](ctx, c, "SegmentDigest", agentURL, copyPath(s, "digest")+fmt.Sprintf("&segment=%d&size=%d", base, size))
	return answer["digest"], err
}

// SegmentBytes streams [from, to) of one segment. The caller closes the body; process is the source's process instance.
func (c *Client) SegmentBytes(ctx context.Context, agentURL string, s Subject, base, from, to int64) (body io.ReadCloser, process uuid.UUID, err error) {
	resp, err := c.do(ctx, "SegmentBytes", http.MethodGet, agentURL, copyPath(s, "bytes")+fmt.Sprintf("&segment=%d&from=%d&to=%d", base, from, to), nil)
	if err != nil {
		return nil, uuid.Nil, err
	}
	process, err = uuid.Parse(resp.Header.Get("X-Process-Instance"))
	if err != nil {
		resp.Body.Close()
		return nil, uuid.Nil, fmt.Errorf("the source names no process instance: %w", err)
	}
	return resp.Body, process, nil
}

func copyPath(s Subject, what string) string {
	return "/v1/copies/" + url.PathEscape(s.MoveID) + "/" + what + "?topicId=" + s.TopicID.String() +
		"&partition=" + strconv.Itoa(int(s.Partition)) + "&epoch=" + strconv.Itoa(int(s.Epoch))
}

// CommitOffsets stores offsets at their owner.
func (c *Client) CommitOffsets(ctx context.Context, agentURL string, req OffsetsRequest) (OffsetsAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, quickBound)
	defer cancel()
	return post[OffsetsAnswer](ctx, c, "CommitOffsets", agentURL, "/v1/offsets/commit", req)
}

// FetchOffsets reads offsets at their owner.
func (c *Client) FetchOffsets(ctx context.Context, agentURL string, req OffsetsRequest) (OffsetsAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, quickBound)
	defer cancel()
	return post[OffsetsAnswer](ctx, c, "FetchOffsets", agentURL, "/v1/offsets/fetch", req)
}

func post[A any](ctx context.Context, c *Client, call, agentURL, path string, req any) (A, error) {
	var answer A
	body, err := json.Marshal(req)
	if err != nil {
		return answer, err
	}
	resp, err := c.do(ctx, call, http.MethodPost, agentURL, path, body)
	return decode[A](resp, err)
}

func get[A any](ctx context.Context, c *Client, call, agentURL, path string) (A, error) {
	resp, err := c.do(ctx, call, http.MethodGet, agentURL, path, nil)
	return decode[A](resp, err)
}

func decode[A any](resp *http.Response, err error) (A, error) {
	var answer A
	if err != nil {
		return answer, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil && !errors.Is(err, io.EOF) {
		return answer, fmt.Errorf("the agent's answer could not be read: %w", err)
	}
	return answer, nil
}

// do sends one request; an answer that is not 2xx becomes the agent's *Error.
//
// The reply is lost: the caller knows nothing, and asks again. Every call may be repeated.
func (c *Client) do(ctx context.Context, call, method, agentURL, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, agentURL+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if faults.LoseReply(call) {
		resp.Body.Close()
		return nil, fmt.Errorf("%s %s: %w", method, path, io.ErrUnexpectedEOF)
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	refusal := &Error{}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(refusal); err != nil || refusal.Code == "" {
		return nil, fmt.Errorf("%s %s: %s", method, path, resp.Status)
	}
	return nil, refusal
}
