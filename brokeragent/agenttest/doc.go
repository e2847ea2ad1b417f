// Package agenttest runs a fleet of agents inside a test: real listeners, real data folders, a real Postgres, and no
// Temporal. A test drives a move step by step through the control API, exactly as the activities do, and can stop at every
// step. Each agent reaches Postgres through a proxy of its own, so that it alone can be cut off.
//
// Start with fleet.go; move.go drives moves, kafka.go speaks to the brokers as clients do.
package agenttest
