package brokeragent

import (
	"net/http"

	"portage/brokeragent/control"
)

// serveRows shows what this agent holds of the metastore's rows: the evidence of `portage reconcile` (R1).
func (a *Agent) serveRows(w http.ResponseWriter, _ *http.Request) error {
	rows, topics := a.native.HeldRows()
	answer := control.HeldRows{Broker: a.cfg.BrokerID, Storage: a.root.identity.Storage, Process: a.process, Topics: []control.HeldTopic{}, Rows: []control.HeldRow{}}
	fence := a.fence.current()
	answer.ControllerEpoch, answer.ControllerID = fence.ControllerEpoch, fence.ControllerID
	for _, t := range topics {
		answer.Topics = append(answer.Topics, control.HeldTopic{TopicID: t.ID, Name: t.Name, Partitions: t.Partitions, ReplicationFactor: t.ReplicationFactor,
			WritePolicy: t.WritePolicy, ProducePolicy: t.ProducePolicy, Internal: t.Internal, Config: t.Config})
	}
	for _, h := range rows {
		row := h.Row
		answer.Rows = append(answer.Rows, control.HeldRow{TopicID: row.TopicID, Topic: row.Topic, Partition: row.Partition, Owner: row.Owner, OwnerStorage: row.OwnerStorage,
			Epoch: row.Epoch, Version: row.Version, State: row.State, OpenedEpoch: row.OpenedEpoch, OpenedProcess: row.OpenedProcess, OpenedEnd: row.OpenedEnd,
			MoveID: row.Moving(), LastMove: row.LastMove, WriteCopies: row.WriteCopies, SealCopies: row.SealCopies, Serving: h.Serving, Suspended: h.Suspended})
	}
	return writeJSON(w, answer)
}
