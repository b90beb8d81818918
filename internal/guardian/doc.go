// Package guardian is the process that starts the command of "sqllock run" and ends it
// when its lock can no longer be trusted.
//
// A program that imports the package is a guardian when its first argument is [Arg]:
// the package's init does the guardian's work and exits. That is not only shorter than
// a call in main. A program with four database drivers in it takes its time before main
// begins; Go initialises a package as soon as what it imports has been (the
// specification says so: "Package initialization"), so a guardian that imports little
// is at work before the drivers have their turn, and does without them. Hence no fmt
// in here, no strings, and nothing of sqllock.
//
// # What is said
//
// The guardian is told line by line what to do, on the file [ControlFD], whose end means
// that sqllock has gone; and says on [ReportFD] what has happened. Numbers are decimal,
// TERM and KILL deadlines as [EncodeDeadline] makes them (0 and 0: none), the texts
// quoted as by strconv.Quote.
//
//	start TERM KILL GROUP NAME OWNER TOKEN   start the command; GROUP is sqllock's process group
//	arm TERM KILL                            SIGTERM and SIGKILL are due then
//	signal N                                 send a signal to the command's group
//
//	started PID
//	term, kill                               a deadline has passed
//	nostop                                   the command was stopped, and was sent on
//	failed ERRNO TEXT                        it could not be started
//	exit CODE, killed N                      it has ended, and nothing of its group is left
package guardian

import "time"

// Arg is the hidden argument that makes a guardian of the program. Behind it stand the
// path of the command and its arguments, from its own name on.
const Arg = "__guardian"

// The files of a guardian: what it is told, and what it reports.
const (
	ControlFD = 3
	ReportFD  = 4
)

// LeftoverGrace is how long what the command has left running in its group may take to
// end after SIGTERM.
const LeftoverGrace = 5 * time.Second

// The exit codes of a guardian that has not done its work, from BSD's sysexits.h.
const (
	exitUsage    = 64 // EX_USAGE
	exitInternal = 70 // EX_SOFTWARE
)
