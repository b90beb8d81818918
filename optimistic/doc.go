// Package optimistic refuses lost updates by a version column: a row is changed only
// if it is still the one that was read.
//
//	UPDATE article SET title = 'new', version = version + 1
//	WHERE id = 7 AND version = 3
//
// Nothing is locked while somebody edits, for as long as that takes. Who comes
// second changes nothing and is told why ([ConflictError]): the row is stale, it is
// gone, or a condition ([If]) does not hold. [Check] says the same of SQL that others
// have written.
//
// Where the two are machines, the second reads again and tries again: [Do], or
// [sqldb.Retry] around a transaction of one's own, pause with full jitter, which on
// one row lets several times as many through as trying again at once.
//
// [Fence] is for what a lock protects: it refuses whoever comes with an older fencing
// token than the row has seen.
//
// # Not guaranteed
//
// Who changes the row and leaves the version alone is not seen. A row that was
// deleted and inserted again begins with a version that it has had before, and may
// look like the old one. A clock of seconds is no version: two changes within one
// second look alike.
package optimistic
