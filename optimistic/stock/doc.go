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
package stock
