// Package netcut is one network link that a test may break: a TCP proxy that lets everything through, holds back one or
// both directions, slows them down, or resets every connection, and is mended later.
//
// A held direction is what a network does that drops packets: nothing arrives, nobody is told, and what was sent before
// the mending arrives after it, however late that is and whether or not its sender still waits.
package netcut
