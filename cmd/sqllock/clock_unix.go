//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package main

import "time"

// A deadline goes from one process to the other as the time that is left: a sender
// that is stopped between working it out and sending it delays it by that pause.

func encodeDeadline(t time.Time) int64 { return int64(time.Until(t)) }

func decodeDeadline(left int64) time.Time { return time.Now().Add(time.Duration(left)) }
