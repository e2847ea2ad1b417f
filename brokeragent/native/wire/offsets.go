package wire

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	timestampMax = -3 // offset of the largest timestamp

	firstMaxTimestampList       = 7
	firstOffsetNotAvailableList = 5
)

func handleListOffsets(k *call) (kmsg.Response, error) {
	req := k.req.(*kmsg.ListOffsetsRequest)
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	routing, err := k.routing()
	if err != nil {
		return nil, err
	}
	for _, t := range req.Topics {
		rt := kmsg.NewListOffsetsResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			a := OffsetAnswer{Offset: -1, Timestamp: -1, LeaderEpoch: -1}
			ref, known := routing.partition(t.Topic, p.Partition)
			switch {
			case !known:
				a.Code = kerr.UnknownTopicOrPartition.Code
			case p.Timestamp < timestampMax, p.Timestamp == timestampMax && k.version < firstMaxTimestampList:
				a.Code = kerr.UnsupportedVersion.Code
			default:
				a = k.srv.broker.ListOffset(k.conn.work, ref, p.CurrentLeaderEpoch, p.Timestamp)
			}
			if a.Code == kerr.OffsetNotAvailable.Code && k.version < firstOffsetNotAvailableList {
				a.Code = kerr.LeaderNotAvailable.Code // what older clients retry on (KIP-207)
			}
			if a.Code != 0 {
				a.Offset, a.Timestamp, a.LeaderEpoch = -1, -1, -1
			}
			rp := kmsg.NewListOffsetsResponseTopicPartition()
			rp.Partition = p.Partition
			rp.ErrorCode, rp.Offset, rp.Timestamp, rp.LeaderEpoch = a.Code, a.Offset, a.Timestamp, a.LeaderEpoch
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, nil
}

func handleOffsetForLeaderEpoch(k *call) (kmsg.Response, error) {
	req := k.req.(*kmsg.OffsetForLeaderEpochRequest)
	resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	routing, err := k.routing()
	if err != nil {
		return nil, err
	}
	for _, t := range req.Topics {
		rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			a := EpochEndAnswer{Code: kerr.UnknownTopicOrPartition.Code}
			if ref, known := routing.partition(t.Topic, p.Partition); known {
				a = k.srv.broker.EpochEnd(k.conn.work, ref, p.CurrentLeaderEpoch, p.LeaderEpoch)
			}
			if a.Code != 0 {
				a.LeaderEpoch, a.EndOffset = -1, -1
			}
			rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			rp.Partition = p.Partition
			rp.ErrorCode, rp.LeaderEpoch, rp.EndOffset = a.Code, a.LeaderEpoch, a.EndOffset
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, nil
}
