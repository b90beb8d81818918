// Package dsn reads the connection strings that sqllock's commands take, and
// opens a database from them. What it understands:
//
//	postgres://user:password@host:5432/database?sslmode=require
//	postgresql://…                         the same
//	host=… user=… dbname=…                 PostgreSQL's keyword/value form
//	mysql://user:password@host:3306/database?ssl-mode=REQUIRED
//	mariadb://…                            the same
//	user:password@tcp(host:3306)/database  go-sql-driver's own form
//	sqlite:path/to/file.db                 sqlite:///absolute, sqlite::memory:
//	file:path/to/file.db?mode=rw           SQLite's own URI
//
// # Passwords
//
// A password is never in what the package returns as text: not in
// [DSN.Redacted], not in an error of [Parse], which is made of fixed words where
// the string could not be understood, and not in one of [DSN.Open], which has gone
// through a [Scrubber]. In a URL everything that has a meaning of its own must be
// percent-encoded (@ is %40, / is %2F, # is %23). A URL that seems to break this
// rule is refused rather than guessed at: half of a password that is taken for a
// host would be printed.
//
// # Defaults
//
// A connection attempt ends after ten seconds unless the DSN says otherwise, and so
// does all of [DSN.Open], for each host: a server of another kind may take the
// connection and then say nothing.
// SQLite files are opened with busy_timeout(5000), journal_mode(WAL) and
// _txlock=immediate unless the DSN says otherwise.
package dsn
