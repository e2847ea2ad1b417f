package wire

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func client(t testing.TB, n *node, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(n.addr)}, opts...)...)
	if err != nil {
		t.Fatalf("client: %v", err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func produce(t testing.TB, cl *kgo.Client, rs ...*kgo.Record) {
	t.Helper()
	if err := cl.ProduceSync(within(t, 20*time.Second), rs...).FirstErr(); err != nil {
		t.Fatalf("produce: %v", err)
	}
}

// consume polls until there are want records and returns their values.
func consume(t testing.TB, cl *kgo.Client, want int) []string {
	t.Helper()
	ctx := within(t, 20*time.Second)
	var got []string
	for len(got) < want {
		fs := cl.PollFetches(ctx)
		fs.EachError(func(topic string, p int32, err error) {
			t.Fatalf("fetch %s/%d: %v after %d records", topic, p, err, len(got))
		})
		fs.EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
	}
	return got
}

func TestFranzProducesWithEveryCompressionAndConsumesItAll(t *testing.T) {
	f := newFleet(t)
	n := f.start(Options{})
	adm := kadm.NewClient(client(t, n))
	created, err := adm.CreateTopic(within(t, 10*time.Second), 1, 1, map[string]*string{"retention.ms": kadm.StringPtr("1000")}, "orders")
	if err != nil {
		t.Fatalf("create topic: %v", err)
	}
	ref := PartitionRef{"orders", uuid.UUID(created.ID), 0}

	codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	const each = 50
	for i, codec := range codecs {
		cl := client(t, n, kgo.ProducerBatchCompression(codec), kgo.DefaultProduceTopic("orders"))
		var rs []*kgo.Record
		for j := range each {
			rs = append(rs, kgo.StringRecord(fmt.Sprintf("codec %d record %d, with enough of the same to be worth compressing: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", i, j)))
		}
		produce(t, cl, rs...)
	}
	stored := f.codecs(ref)
	for i := range codecs {
		if stored[uint16(i)] == 0 {
			t.Errorf("no batch of codec %d was stored: %v", i, stored)
		}
	}

	got := consume(t, client(t, n, kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())), each*len(codecs))
	for i, v := range got {
		if want := fmt.Sprintf("codec %d record %d,", i/each, i%each); v[:len(want)] != want {
			t.Fatalf("record %d is %q; want %q", i, v, want)
		}
	}
}

func TestFranzListsOffsets(t *testing.T) {
	f := newFleet(t)
	n := f.start(Options{})
	f.createTopic("orders", 2, n.id)
	cl := client(t, n, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for i := range 5 {
		produce(t, cl, &kgo.Record{Topic: "orders", Value: []byte("v"), Timestamp: time.UnixMilli(int64(1000 + i))})
	}
	adm := kadm.NewClient(cl)
	ctx := within(t, 10*time.Second)
	check := func(what string, list kadm.ListedOffsets, err error, want int64) {
		t.Helper()
		o, ok := list.Lookup("orders", 0)
		if err != nil || !ok || o.Err != nil || o.Offset != want {
			t.Errorf("%s: offset %d, want %d (error %v, %v)", what, o.Offset, want, err, o.Err)
		}
	}
	start, err := adm.ListStartOffsets(ctx, "orders")
	check("start", start, err, 0)
	end, err := adm.ListEndOffsets(ctx, "orders")
	check("end", end, err, 5)
	at, err := adm.ListOffsetsAfterMilli(ctx, 1003, "orders")
	check("after 1003", at, err, 3)
	top, err := adm.ListMaxTimestampOffsets(ctx, "orders")
	check("max timestamp", top, err, 4)
	if o, _ := end.Lookup("orders", 0); o.LeaderEpoch != 1 {
		t.Errorf("leader epoch %d, want 1", o.LeaderEpoch)
	}
}

func TestFranzCommitsAndFetchesOffsets(t *testing.T) {
	f := newFleet(t)
	n := f.start(Options{})
	f.createTopic("orders", 2, n.id)
	f.createTopic("bills", 1, n.id)
	adm := kadm.NewClient(client(t, n))
	ctx := within(t, 10*time.Second)

	var offsets kadm.Offsets
	offsets.AddOffset("orders", 0, 7, 1)
	offsets.AddOffset("orders", 1, 8, -1)
	offsets.AddOffset("bills", 0, 9, 3)
	if err := adm.CommitAllOffsets(ctx, "g", offsets); err != nil {
		t.Fatalf("commit: %v", err)
	}
	if calls := f.called("CommitOffsets"); calls != 1 {
		t.Errorf("one request took %d CommitOffsets calls; want 1", calls)
	}

	all, err := adm.FetchOffsets(ctx, "g") // the null form
	if err != nil || all.Error() != nil {
		t.Fatalf("fetch all: %v %v", err, all.Error())
	}
	if got := len(all.Sorted()); got != 3 {
		t.Errorf("fetch all: %d offsets, want 3: %v", got, all)
	}
	if o, _ := all.Lookup("bills", 0); o.At != 9 || o.LeaderEpoch != 3 {
		t.Errorf("bills/0: %+v", o)
	}

	many := adm.FetchManyOffsets(ctx, "g", "other")
	if err := many.Error(); err != nil {
		t.Fatalf("fetch many: %v", err)
	}
	if len(many["g"].Fetched.Sorted()) != 3 || len(many["other"].Fetched.Sorted()) != 0 {
		t.Errorf("fetch many: %v", many)
	}

	var unknown kadm.Offsets
	unknown.AddOffset("nowhere", 0, 1, -1)
	resp, err := adm.CommitOffsets(ctx, "g", unknown)
	if err != nil || !errors.Is(resp.Error(), kerr.UnknownTopicOrPartition) {
		t.Errorf("commit to an unknown topic: %v %v", err, resp.Error())
	}

	f.set(func() { f.whole = kerr.InvalidGroupID.Code })
	resp, err = adm.CommitOffsets(ctx, "g", offsets)
	if err != nil || len(resp.Sorted()) != 3 {
		t.Fatalf("commit with a whole code: %v %v", err, resp)
	}
	for _, o := range resp.Sorted() {
		if !errors.Is(o.Err, kerr.InvalidGroupID) {
			t.Errorf("%s/%d: %v; a whole code answers every partition", o.Topic, o.Partition, o.Err)
		}
	}
}

func TestCommitOfAGroupMemberIsRefused(t *testing.T) {
	f := newFleet(t)
	n := f.start(Options{})
	f.createTopic("orders", 1, n.id)
	for _, tc := range []struct {
		name       string
		member     string
		generation int32
		want       int16
	}{
		{"simple consumer", "", -1, 0},
		{"member", "m", 3, kerr.UnknownMemberID.Code},
		{"generation alone", "", 0, kerr.UnknownMemberID.Code},
	} {
		req := kmsg.NewPtrOffsetCommitRequest()
		req.Version = 9
		req.Group, req.MemberID, req.Generation = "g", tc.member, tc.generation
		rp := kmsg.NewOffsetCommitRequestTopicPartition()
		rp.Offset = 4
		req.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "orders", Partitions: []kmsg.OffsetCommitRequestTopicPartition{rp}}}
		resp := roundTrip(t, n, req).(*kmsg.OffsetCommitResponse)
		if got := resp.Topics[0].Partitions[0].ErrorCode; got != tc.want {
			t.Errorf("%s: code %d, want %d", tc.name, got, tc.want)
		}
	}
}

func TestOffsetsAMissingOwnerCannotAnswerAreNeverNone(t *testing.T) {
	f := newFleet(t)
	n := f.start(Options{})
	f.createTopic("orders", 1, n.id)
	f.set(func() { f.whole = kerr.CoordinatorLoadInProgress.Code })
	for version := int16(1); version <= 9; version++ {
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Version = version
		req.Group = "g"
		req.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: "orders", Partitions: []int32{0}}}
		req.Groups = []kmsg.OffsetFetchRequestGroup{{Group: "g", MemberEpoch: -1, Topics: []kmsg.OffsetFetchRequestGroupTopic{{Topic: "orders", Partitions: []int32{0}}}}}
		resp := roundTrip(t, n, req).(*kmsg.OffsetFetchResponse)
		got := resp.ErrorCode
		switch {
		case version >= 8:
			got = resp.Groups[0].ErrorCode
		case version < 2:
			got = resp.Topics[0].Partitions[0].ErrorCode
		}
		if got != kerr.CoordinatorLoadInProgress.Code {
			t.Errorf("version %d: code %d, want %d", version, got, kerr.CoordinatorLoadInProgress.Code)
		}
	}
}

func TestNotLeaderHintMovesProducerAndConsumerQuickly(t *testing.T) {
	f := newFleet(t)
	one, two := f.start(Options{}), f.start(Options{})
	topic := f.createTopic("orders", 1, one.id)
	// The clients refresh their metadata every 5 s at the most, so only the hint can move them within a second.
	producer := client(t, one, kgo.DefaultProduceTopic("orders"))
	consumer := client(t, one, kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(5*time.Second))
	produce(t, producer, kgo.StringRecord("before"))
	consume(t, consumer, 1)

	f.move("orders", 0, two.id)
	began := time.Now()
	produce(t, producer, kgo.StringRecord("after"))
	produced := time.Since(began)
	if got := consume(t, consumer, 1); got[0] != "after" {
		t.Errorf("consumed %q, want the record after the move", got)
	}
	consumed := time.Since(began)
	if produced > time.Second || consumed > 2*time.Second {
		t.Errorf("produced after %s, consumed after %s; the hint should take milliseconds", produced, consumed)
	}
	t.Logf("produced after %s, consumed after %s", produced, consumed)
	if end := f.end(PartitionRef{"orders", topic.ID, 0}); end != 2 {
		t.Errorf("log end %d, want 2", end)
	}
}

func TestOffsetForLeaderEpochAfterAMove(t *testing.T) {
	f := newFleet(t)
	one, two := f.start(Options{}), f.start(Options{})
	f.createTopic("orders", 1, one.id)
	cl := client(t, one, kgo.DefaultProduceTopic("orders"))
	for range 4 {
		produce(t, cl, kgo.StringRecord("v"))
	}
	f.move("orders", 0, two.id)
	cl.ForceMetadataRefresh()
	produce(t, cl, kgo.StringRecord("v"))

	adm := kadm.NewClient(client(t, two))
	for epoch, end := range map[int32]int64{1: 4, 2: 5} {
		req := kadm.OffsetForLeaderEpochRequest{}
		req.Add("orders", 0, epoch)
		resp, err := adm.OffsetForLeaderEpoch(within(t, 10*time.Second), req)
		if err != nil {
			t.Fatalf("epoch %d: %v", epoch, err)
		}
		got := resp["orders"][0]
		if got.Err != nil || got.LeaderEpoch != epoch || got.EndOffset != end {
			t.Errorf("epoch %d ends at %d (epoch %d, error %v), want %d", epoch, got.EndOffset, got.LeaderEpoch, got.Err, end)
		}
	}
}

func TestFranzIsToldAtOnceThatThereAreNoTransactions(t *testing.T) {
	f := newFleet(t)
	n := f.start(Options{})
	f.createTopic("orders", 1, n.id)
	cl := client(t, n, kgo.TransactionalID("tx"), kgo.DefaultProduceTopic("orders"))
	began := time.Now()
	if err := cl.BeginTransaction(); !errors.Is(err, kerr.TransactionalIDAuthorizationFailed) {
		t.Errorf("begin: %v, want TRANSACTIONAL_ID_AUTHORIZATION_FAILED", err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the error took %s", took)
	}
}

func TestMetadataRules(t *testing.T) {
	f := newFleet(t)
	one, _ := f.start(Options{}), f.start(Options{})
	orders := f.createTopic("orders", 2, one.id)
	f.createTopic("bills", 1, one.id)
	f.move("orders", 1, 2)
	f.move("orders", 1, -1)
	ask := func(version int16, topics ...kmsg.MetadataRequestTopic) *kmsg.MetadataResponse {
		req := kmsg.NewPtrMetadataRequest()
		req.Version, req.Topics = version, topics
		return roundTrip(t, one, req).(*kmsg.MetadataResponse)
	}
	name := func(s string) kmsg.MetadataRequestTopic { return kmsg.MetadataRequestTopic{Topic: &s} }

	if got := len(ask(0).Topics); got != 2 {
		t.Errorf("version 0, empty list: %d topics, want all 2", got)
	}
	if got := len(ask(12).Topics); got != 2 {
		t.Errorf("version 12, null: %d topics, want all 2", got)
	}
	none := kmsg.NewPtrMetadataRequest()
	none.Version, none.Topics = 12, []kmsg.MetadataRequestTopic{}
	if got := roundTrip(t, one, none).(*kmsg.MetadataResponse); len(got.Topics) != 0 || len(got.Brokers) != 2 {
		t.Errorf("version 12, empty: %d topics and %d brokers, want 0 and 2", len(got.Topics), len(got.Brokers))
	}
	for version := int16(0); version <= 12; version++ {
		resp := ask(version, name("orders"), name("nowhere"))
		if code := resp.Topics[1].ErrorCode; code != kerr.UnknownTopicOrPartition.Code {
			t.Errorf("version %d: unknown topic has code %d", version, code)
		}
		p := resp.Topics[0].Partitions[1]
		if p.Leader != -1 || p.ErrorCode != kerr.LeaderNotAvailable.Code || version >= 7 && p.LeaderEpoch != 2 {
			t.Errorf("version %d: leaderless partition is %+v, want code 5, leader -1, epoch 2", version, p)
		}
		if version >= 1 && resp.ControllerID != 1 {
			t.Errorf("version %d: controller %d, want 1", version, resp.ControllerID)
		}
		if version >= 2 && *resp.ClusterID != "test-cluster" {
			t.Errorf("version %d: cluster %q", version, *resp.ClusterID)
		}
		if version >= 10 && resp.Topics[0].TopicID != orders.ID {
			t.Errorf("version %d: topic id %x, want %s", version, resp.Topics[0].TopicID, orders.ID)
		}
	}
	byID := ask(12, kmsg.MetadataRequestTopic{TopicID: orders.ID}, kmsg.MetadataRequestTopic{TopicID: uuid.New()})
	if byID.Topics[0].Topic == nil || *byID.Topics[0].Topic != "orders" || byID.Topics[1].ErrorCode != kerr.UnknownTopicID.Code {
		t.Errorf("by id: %+v", byID.Topics)
	}
}

func TestTopicsAreCreatedAndDeleted(t *testing.T) {
	f := newFleet(t)
	n := f.start(Options{})
	adm := kadm.NewClient(client(t, n))
	ctx := within(t, 10*time.Second)
	if _, err := adm.CreateTopic(ctx, 3, 1, nil, "orders"); err != nil {
		t.Fatalf("create: %v", err)
	}
	if _, err := adm.CreateTopic(ctx, 3, 1, nil, "orders"); !errors.Is(err, kerr.TopicAlreadyExists) {
		t.Errorf("create twice: %v", err)
	}
	if _, err := adm.DeleteTopic(ctx, "orders"); err != nil {
		t.Errorf("delete: %v", err)
	}
	if _, err := adm.DeleteTopic(ctx, "orders"); !errors.Is(err, kerr.UnknownTopicOrPartition) {
		t.Errorf("delete twice: %v", err)
	}
	topic := f.createTopic("bills", 1, n.id)
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Version = 6
	req.Topics = []kmsg.DeleteTopicsRequestTopic{{TopicID: topic.ID}}
	resp := roundTrip(t, n, req).(*kmsg.DeleteTopicsResponse).Topics[0]
	if resp.ErrorCode != 0 || resp.Topic == nil || *resp.Topic != "bills" {
		t.Errorf("delete by id: %+v", resp)
	}
}

func TestPartitionsAreAdded(t *testing.T) {
	f := newFleet(t)
	n := f.start(Options{})
	f.createTopic("orders", 2, n.id)
	adm := kadm.NewClient(client(t, n))
	ctx := within(t, 10*time.Second)
	if answers, err := adm.ValidateUpdatePartitions(ctx, 5, "orders"); err != nil || answers.Error() != nil {
		t.Errorf("only checked: %v, %v", err, answers.Error())
	}
	if have := len(n.Routing().Topics["orders"].Partitions); have != 2 {
		t.Errorf("a check left %d partitions", have)
	}
	if answers, err := adm.CreatePartitions(ctx, 3, "orders"); err != nil || answers.Error() != nil {
		t.Errorf("add: %v, %v", err, answers.Error())
	}
	if have := len(n.Routing().Topics["orders"].Partitions); have != 5 {
		t.Errorf("there are %d partitions", have)
	}
	for topic, want := range map[string]*kerr.Error{"orders": kerr.InvalidPartitions, "bills": kerr.UnknownTopicOrPartition} {
		req := kmsg.NewPtrCreatePartitionsRequest()
		req.Version = 3
		req.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: topic, Count: 5}}
		if got := roundTrip(t, n, req).(*kmsg.CreatePartitionsResponse).Topics[0]; got.ErrorCode != want.Code {
			t.Errorf("%s: %+v, want %v", topic, got, want)
		}
	}
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.Version = 3
	req.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: "orders", Count: 7, Assignment: []kmsg.CreatePartitionsRequestTopicAssignment{{Replicas: []int32{n.id}}}}}
	if got := roundTrip(t, n, req).(*kmsg.CreatePartitionsResponse).Topics[0]; got.ErrorCode != kerr.InvalidReplicaAssignment.Code {
		t.Errorf("an assignment of one of two: %+v", got)
	}
}
