// Package chaos moves the partitions of one topic back and forth on a fleet and breaks the fleet at random meanwhile: it
// kills (-9) and stops processes, Postgres and Temporal too, at crash points and in between, cuts links, loses replies and
// cancels moves. The random schedules of the tests and the soak share it.
//
// What it promises: the same seed makes the same choices, though not at the same instants; whatever it breaks it has mended
// when Move returns; a move that ends otherwise than done, cancelled on request or refused before it changed anything, is an
// error. What the caller owes: a ledger of what clients were told, compared at the end; fleets whose links and crash points
// are a faultctl.Ctl's.
package chaos
