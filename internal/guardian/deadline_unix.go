//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package guardian

import "time"

// A deadline goes from one process to the other as the time that is left: a sender
// that is stopped between working it out and sending it delays it by that pause.

// EncodeDeadline is a deadline as the guardian reads it.
func EncodeDeadline(t time.Time) int64 { return int64(time.Until(t)) }

func decodeDeadline(left int64) time.Time { return time.Now().Add(time.Duration(left)) }
