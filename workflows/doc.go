// Package workflows is the orchestration of Portage: what happens in which order, and what undoes what. Workflow code is
// deterministic: it imports no network or database code, and everything it does to the world is an activity named in
// workflows/protocol.
//
// Start with move.go, which reads like the protocol; move_state.go is what people see of it.
package workflows
