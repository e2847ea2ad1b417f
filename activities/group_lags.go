package activities

import (
	"context"
	"fmt"
	"time"

	"portage/brokeragent/control"
	"portage/metastore"
	"portage/workflows/protocol"
)

// GroupLags asks the owners of partitions how far the groups are behind there. It changes nothing.
//
// An owner does not answer, or has the partition not open: asked again until it has; what is not known is neither good nor bad.
// An agent of a version that does not tell lags ends it.
func (p *Plans) GroupLags(ctx context.Context, args protocol.LagArgs) ([]protocol.PartitionLags, error) {
	return patientPlan(ctx, p, func(ctx context.Context) ([]protocol.PartitionLags, error) {
		all := make([]protocol.PartitionLags, 0, len(args.Partitions))
		for _, of := range args.Partitions {
			lags, err := p.groupLags(ctx, of, time.Duration(args.LiveWithin))
			if err != nil {
				return nil, err
			}
			all = append(all, lags)
		}
		return all, nil
	})
}

func (p *Plans) groupLags(ctx context.Context, of protocol.LagOf, liveWithin time.Duration) (protocol.PartitionLags, error) {
	lags := protocol.PartitionLags{LagOf: of}
	row, err := p.Store.FindAssignment(ctx, of.Topic, of.Partition)
	switch {
	case err != nil:
		return lags, &metastore.Unknown{Write: "reading the owner", Cause: err}
	case row == nil || (of.TopicID != "" && of.TopicID != row.TopicID.String()):
		lags.Gone = true
		return lags, nil
	}
	owner, err := p.Store.FindBroker(ctx, row.Owner)
	switch {
	case err != nil:
		return lags, &metastore.Unknown{Write: "reading the owner", Cause: err}
	case owner == nil:
		return lags, fmt.Errorf("the owner %s of %s is not in the metastore", row.Owner, of)
	}
	ask, cancel := context.WithTimeout(ctx, aliveWithin)
	defer cancel()
	status, err := p.Agents.Partition(ask, owner.ControlURL, row.TopicID, of.Partition)
	switch {
	case control.CodeOf(err) == control.CodeNotFound, control.CodeOf(err) == control.CodeNotOwner:
		// It moved on since the row was read, or is not loaded yet: nothing final.
		return lags, fmt.Errorf("%s is not on %s at the moment: %v", of, owner.ID, err)
	case err != nil:
		return lags, fmt.Errorf("the agent of %s does not say how far the consumers of %s are behind: %w", owner.ID, of, err)
	case status.State != "open":
		return lags, fmt.Errorf("%s is not open on %s", of, owner.ID)
	case status.Groups > 0 && len(status.GroupLags) == 0:
		return lags, refused(protocol.CodeCanaryFailed, fmt.Sprintf("the agent of %s is of a version that does not tell how far consumers are behind; upgrade it, or leave \"lag\" out of the canary", owner.ID))
	}
	lags.More = status.Groups > len(status.GroupLags)
	for _, g := range status.GroupLags {
		if liveWithin == 0 || g.Lag == 0 || g.IdleFor <= liveWithin {
			lags.Groups = append(lags.Groups, protocol.GroupLag{Group: g.Group, Lag: g.Lag})
		}
	}
	return lags, nil
}
