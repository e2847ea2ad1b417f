// Package e2e holds the end-to-end tests of Portage: whole fleets as separate processes of the built binary, real
// Postgres, real Temporal, real Kafka clients, and participants that are killed (-9) or stopped at named places.
//
//   - main_test.go builds the binary and reports at the end what ran and which crash points were reached.
//   - rig_test.go is one fleet whose processes can be halted, killed and cut off, handed on from test to test.
//   - world_test.go is one fleet with its topic, its load, and what must be true once a move is over.
//   - matrix_test.go is the matrix, whose cells are in crash_test.go (who dies at which step), lost_test.go (whose reply is
//     lost), links_test.go (which link is cut), repeat_test.go (which requests arrive twice), temporal_test.go (terminate and
//     reset) and topics_test.go (the topic changes).
//
// By default the most telling cells run; PORTAGE_TEST=all runs every one, and then fails on a cell that did not
// run and a crash point that was not reached. docs/testing.md says more; one cell runs alone as `go test -tags portage_faults -run 'TestCrashPoints/freeze.after/source' ./internal/e2e`.
package e2e
