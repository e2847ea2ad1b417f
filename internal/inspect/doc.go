// Package inspect looks at a fleet for people: Explain at one partition (where it is, where it should be and why, what
// blocks it, what happened), Examine at everything a fleet rests on. It changes nothing, asks every system for a bounded
// time only, and says what it could not ask: whichever of metastore, Temporal and agents is away, the rest is shown.
//
// explain.go gathers, explain_text.go writes; doctor.go does the same for the whole fleet, with one file a system.
package inspect
