// Package locktest has what tests of locks need: [Memory], a Locker without a
// database for the unit tests of programs that use locks; [Run], the suite that
// every strategy has to pass; and [Main] with [Start], which run a part of a test
// in a process of its own, so that the test can stop it or kill it.
package locktest
