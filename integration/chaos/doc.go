// Package chaos has processes increment a row under one lock of the lock table, in guarded transactions, while they
// are killed and stopped, their connections are cut, and the server is restarted: no increment may get lost, and no
// older token may be seen after a newer one. The same without the guard has to fail.
package chaos
