package wire

import (
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const produceKey = 0

// api is one served request: its key, the versions advertised, and who handles it.
type api struct {
	key      int16
	min, max int16
	handle   func(*call) (kmsg.Response, error) // a nil response sends nothing; an error closes the connection
}

// supportedAPIs is the one table of what is served: ApiVersions lists it and dispatch follows it. The minimums are not
// all served for their own sake: librdkafka before 2.11 finds out what a broker can do by looking for exact old versions,
// and without Produce 0 sends gzip, snappy and lz4 uncompressed. The Produce maximum stays below topic ids.
func supportedAPIs() map[int16]api {
	table := map[int16]api{}
	for _, a := range []api{
		{produceKey, 0, 11, handleProduce}, // really served from 3 on
		{1, 4, 16, handleFetch},
		{2, 1, 7, handleListOffsets},
		{3, 0, 12, handleMetadata},
		{8, 2, 9, handleOffsetCommit},
		{9, 1, 9, handleOffsetFetch},
		{10, 0, 4, handleFindCoordinator},
		{apiVersionsKey, 0, 4, handleAPIVersions}, // 5 would make the server check the cluster and node it was meant for
		{19, 2, 7, handleCreateTopics},
		{20, 1, 6, handleDeleteTopics},
		{22, 0, 4, handleInitProducerID},
		{23, 2, 4, handleOffsetForLeaderEpoch},
		{37, 0, 3, handleCreatePartitions},
		{60, 0, 1, handleDescribeCluster},
	} {
		table[a.key] = a
	}
	return table
}

// call is one request in hand.
type call struct {
	conn     *conn
	srv      *Server
	req      kmsg.Request
	version  int16
	arrived  time.Time
	sizeHint int // about how large the encoded answer will be
}

// answer finds and runs the handler of one request.
func (c *conn) answer(f frame, h header) (kmsg.Response, int, error) {
	a, known := c.srv.apis[h.key]
	if h.key == apiVersionsKey && (h.version < a.min || h.version > a.max) {
		return unsupportedAPIVersions(a), 0, nil // whatever follows the header is not for us to read
	}
	if !known {
		return nil, 0, fmt.Errorf("%w: this key is not served", kerr.UnsupportedVersion)
	}
	if h.version < a.min || h.version > a.max {
		if resp := unsupported(f, h); resp != nil {
			return resp, 0, nil
		}
		return nil, 0, fmt.Errorf("%w: versions %d to %d of this key are served", kerr.UnsupportedVersion, a.min, a.max)
	}
	req, err := f.decode(h)
	if err != nil {
		return nil, 0, err
	}
	k := &call{conn: c, srv: c.srv, req: req, version: h.version, arrived: f.arrived}
	resp, err := a.handle(k)
	return resp, k.sizeHint, err
}

// unsupported answers a version outside the advertised range, for those requests a client might send without having
// asked for the range, or with one place for the error; nil for the others.
func unsupported(f frame, h header) kmsg.Response {
	req, err := f.decode(h)
	if err != nil {
		return nil
	}
	switch resp := req.ResponseKind().(type) {
	case *kmsg.ProduceResponse: // too new; those too old are the handler's
		if req.(*kmsg.ProduceRequest).Acks == 0 {
			return nil
		}
		for _, t := range req.(*kmsg.ProduceRequest).Topics {
			rt := kmsg.NewProduceResponseTopic()
			rt.Topic, rt.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				rp := kmsg.NewProduceResponseTopicPartition()
				rp.Partition, rp.BaseOffset, rp.ErrorCode = p.Partition, -1, kerr.UnsupportedVersion.Code
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp
	case *kmsg.FetchResponse:
		resp.ErrorCode = kerr.UnsupportedVersion.Code
		for _, t := range req.(*kmsg.FetchRequest).Topics { // before version 7 there is no code for the whole
			rt := kmsg.NewFetchResponseTopic()
			rt.Topic, rt.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				rp := kmsg.NewFetchResponseTopicPartition()
				rp.Partition, rp.HighWatermark, rp.RecordBatches = p.Partition, -1, []byte{}
				rp.ErrorCode = kerr.UnsupportedVersion.Code
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp
	case *kmsg.InitProducerIDResponse:
		resp.ErrorCode = kerr.UnsupportedVersion.Code
		return resp
	case *kmsg.DescribeClusterResponse:
		resp.ErrorCode = kerr.UnsupportedVersion.Code
		return resp
	default:
		return nil
	}
}

func handleAPIVersions(k *call) (kmsg.Response, error) {
	resp := k.req.ResponseKind().(*kmsg.ApiVersionsResponse)
	for _, a := range k.srv.apis {
		resp.ApiKeys = append(resp.ApiKeys, a.listed())
	}
	slices.SortFunc(resp.ApiKeys, func(a, b kmsg.ApiVersionsResponseApiKey) int { return int(a.ApiKey) - int(b.ApiKey) })
	return resp, nil
}

// unsupportedAPIVersions is what KIP-511 wants a client too new to be told: version 0's answer, with the range to use.
func unsupportedAPIVersions(a api) kmsg.Response {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.ErrorCode = kerr.UnsupportedVersion.Code
	resp.ApiKeys = []kmsg.ApiVersionsResponseApiKey{a.listed()}
	return resp
}

func (a api) listed() kmsg.ApiVersionsResponseApiKey {
	k := kmsg.NewApiVersionsResponseApiKey()
	k.ApiKey, k.MinVersion, k.MaxVersion = a.key, a.min, a.max
	return k
}

// routing is the newest routing table, once there is one.
func (k *call) routing() (*Routing, error) {
	select {
	case <-k.srv.broker.Ready():
		return k.srv.broker.Routing(), nil
	default:
	}
	select {
	case <-k.srv.broker.Ready():
		return k.srv.broker.Routing(), nil
	case <-k.conn.poll.Done():
		return nil, fmt.Errorf("no routing table yet: %w", k.conn.poll.Err())
	}
}

// partition finds a partition by its topic's name; false when the table has no such topic or partition.
func (r *Routing) partition(topic string, number int32) (PartitionRef, bool) {
	return refOf(r.Topics[topic], number)
}

func refOf(t *Topic, number int32) (PartitionRef, bool) {
	if t == nil || number < 0 || int(number) >= len(t.Partitions) {
		return PartitionRef{}, false
	}
	return PartitionRef{Topic: t.Name, TopicID: t.ID, Partition: number}, true
}

// node finds a broker of the table.
func (r *Routing) node(id int32) (Node, bool) {
	i, ok := slices.BinarySearchFunc(r.Nodes, id, func(n Node, id int32) int { return int(n.ID) - int(id) })
	if !ok {
		return Node{}, false
	}
	return r.Nodes[i], true
}

// controller is any one node all brokers agree on, since every broker serves the admin requests clients send there.
func (r *Routing) controller() int32 {
	if len(r.Nodes) == 0 {
		return -1
	}
	return r.Nodes[0].ID
}

// orNull is nil for the empty string.
func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
