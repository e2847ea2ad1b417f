//go:build portage_faults

package brokeragent_test

// Kafka's codes, as clients see them.
const (
	notLeader       = int16(6)
	requestTimedOut = int16(7)
	coordinatorLoad = int16(14)
	outOfOrder      = int16(45)
	storageError    = int16(56)
)
