// Package planner decides. It is pure: values in, values out, the same answer for the same question; it knows neither
// network nor database nor Temporal, and a test holds that.
//
// Where to start reading: Snapshot is what is known of a fleet, Settings what may be set, Plan what comes out.
// MakePlan plans for all goals, BalanceCounts by the number of partitions alone. Windows turn reports into the loads of a snapshot. rules.go has the
// hard rules, which never bend; band.go what a goal asks of each broker. CheckMove is for a single move that a person wants.
//
// What the caller owes: a snapshot that is one consistent read, with loads as Windows make them, and the moves in flight in
// it. Then a plan, planned again from the state it leads to, is empty, whether its moves are over or still under way.
package planner
