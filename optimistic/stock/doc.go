// Package stock keeps counters that are never oversold: gifts of a red packet,
// pieces in a warehouse, seats, coupons, quotas.
//
// The condition stands in the statement that takes:
//
//	UPDATE t_bonus SET left_count = left_count - 1, version = version + 1
//	WHERE id = 10001 AND left_count >= 1
//
// The database evaluates it under the row's own lock, on the row's current state.
// So there is nothing to read before, nothing to compare afterwards, nothing to
// retry, and the counter never goes below zero, whoever else takes. Reading the
// count first and writing what was computed from it is how stock is oversold: two
// that read 1 both write 0.
//
// [Stock.TakeAll] takes several lines or none. [Stock.TakeOnce] takes once for a claim,
// and can be repeated whenever its outcome is unknown. [Stock.Reserve] takes for a time:
// a cart, that is confirmed or cancelled before it expires. At any moment, what is left,
// what is held and what was confirmed add up to what there was.
//
// [Stock.Combine] is for a row that many take from at the same time: one statement and
// one commit for all of them, and each gets its own answer.
//
// [Slotted] spreads one counter over several rows, its slots, for many processes, or
// for takes that have to commit together with something else: they do not wait for each
// other's commit.
//
// # Lock order
//
// Every operation locks in this order: claims first, then reservations, then rows of
// the stock, sorted as the column compares their ids. Operations that run by themselves
// never deadlock with each other, but for claims of a [Combined] on MySQL and MariaDB,
// which says when, and repeats them. Neither do transactions of which each does one of
// them that locks rows (Take, Put, TakeAll, TakeOnce, Reserve, Cancel, Sweep), and any
// Confirm before it. So one TakeAll and not two: a second one locks rows again, and they
// may be out of order. Who can't keep to it gets errors that
// [github.com/sqlnative/locks/sqldb.Retryable] reports, and repeats the transaction.
//
// Of its own accord, the package locks reservations sorted by their ids, or passes over
// those that somebody is at: a take in a transaction, which finds too little when it may
// have locked rows already, waits for no reservation.
//
// A Slotted locks one slot, and passes over those that somebody is at; or it locks slot
// 0 first, and then the others of that id.
package stock
