// Package brokeragent is the process beside (here: with) one broker: it registers the broker, serves the control API
// that moves are driven with, and pulls copies as a destination. The partitions themselves are brokeragent/native.
//
// What it promises: an authenticated order is checked against the fence before anything else; a lower controller epoch
// and an older attempt of the same move are refused (R16); every order may be repeated. It does not know that workflows
// exist.
//
// This process dies: staging folders and the fence are on disk, a move resumes by digest. The worker dies: a copy goes on
// or stands, a freeze ends by its lease. Postgres dies: open partitions serve on.
//
// Start with agent.go, then api.go; orders.go, copy.go and pull.go are the destination's side of a move,
// session.go what it keeps.
package brokeragent
