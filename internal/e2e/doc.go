// Package e2e holds the end-to-end tests of Portage: whole fleets as separate processes of the built binary, real
// Postgres, real Temporal, real Kafka clients, and participants that are killed (-9) or stopped at named places.
//
//   - main_test.go builds the binary, shares the services that no test kills, and reports at the end what ran and which
//     crash points were reached.
//   - rig_test.go is one fleet whose processes can be halted, killed and cut off, handed on from test to test.
//   - world_test.go is one fleet with its topic, its load, and what must be true once a move is over.
//   - crash_test.go is the matrix: who dies at which step.
//
// By default the most telling cells run; PORTAGE_TEST=all runs every one, and then fails on a crash point that no run
// reached. The matrix runs alone as `go test -tags portage_faults -run 'TestCrashPoints/freeze.after/source' ./internal/e2e`.
package e2e
