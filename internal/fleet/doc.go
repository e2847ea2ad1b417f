// Package fleet runs a whole Portage fleet on this machine as separate processes of the built binary: Postgres, Temporal,
// agents, workers. The demo, the tests and the benchmarks share it, so that what is tested is what a person starts.
//
// Everything can be killed (-9), stopped and started again at the same addresses; nothing outlives Close.
package fleet
