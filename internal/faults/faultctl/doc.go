// Package faultctl is the other side of internal/faults: it answers the processes of one fleet that reach a crash point
// (go on, stop), lose a reply, or connect to each other, and keeps count of what was reached.
//
// A halted process stands still with all its threads until Continue or a kill. A link between two processes is a
// netcut.Proxy, made when the first connects to the second; it stays when either is restarted.
package faultctl
