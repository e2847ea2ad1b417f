// Package reconcile decides what the rows of a metastore that went back in time are to become. It is pure: it reads what
// was read, and writes nothing.
package reconcile
