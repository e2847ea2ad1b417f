// Package services runs the systems Portage stands on, Postgres and Temporal, as child processes on
// free loopback ports, for the demo, the tests and the benchmarks. They are the real programs with
// full durability: killing one of them here is the same event as killing it in production.
//
// # What it promises
//
//  1. A service that Start… or Open… returned has answered a request, not only opened its port.
//  2. Kill is kill -9 of everything the service consists of, and returns when all of it is gone.
//     Restart brings it back at the same address with the same data.
//  3. Nothing outlives the parent. Children have process groups of their own, so Ctrl-C reaches
//     the parent alone and its cleanup stops them in order; when the parent itself is killed -9,
//     a watchdog process kills their groups (and on Linux the kernel kills them at once). The
//     processes of Postgres, which leave that group, end when they miss their postmaster.
//  4. An error ends with what to do, or with the last lines of the service's log.
//
// # What the caller owes
//
//  1. Every started service is stopped: Stop keeps the data for a Restart, Close also removes a
//     folder that this package chose. StopAll does it for many, last started first.
//  2. A folder handed in belongs to one service of one process at a time.
//  3. A service that runs elsewhere (PORTAGE_POSTGRES_DSN, TEMPORAL_ADDRESS) cannot be killed. A
//     test that needs to kill one calls StartPostgres or StartTemporal, which look at neither.
//
// Start reading at process.go, then postgres.go.
package services
