// Command testdb runs a command with real databases up, and takes down afterwards what it brought up.
//
//	testdb [-databases postgres,mysql,mariadb] -- COMMAND [ARGUMENT...]
//
// For each database it takes the first of these that works:
//
//  1. the DSN that already stands in the environment; one that does not answer, or that leads to another kind of
//     server, is an error, since somebody meant it;
//  2. Docker, through testcontainers-go, with the images postgres:17-alpine, mysql:9 and mariadb:11;
//  3. a server binary on the machine, started as an unprivileged user on a free port of 127.0.0.1 in a temporary
//     folder;
//  4. on Debian and Ubuntu, as root, apt-get install, and then as in 3. Nothing is started on the standard ports.
//
// What it reads from the environment:
//
//	SQLLOCK_TEST_POSTGRES_DSN  a URL, postgres://user:password@host:port/database
//	SQLLOCK_TEST_MYSQL_DSN     go-sql-driver's form, user:password@tcp(host:port)/database?parseTime=true,
//	SQLLOCK_TEST_MARIADB_DSN   or a URL mysql://, mariadb://, which is passed on in the driver's form
//	SQLLOCK_TEST_DOCKER=0      skips Docker
//	SQLLOCK_TEST_APT=0         refuses apt-get
//	SQLLOCK_TEST_REQUIRE       databases, separated by commas, without which testdb fails before COMMAND runs
//
// What COMMAND finds in its environment, which is otherwise the caller's, as are its folder and its standard streams:
//
//	SQLLOCK_TEST_POSTGRES_DSN, _MYSQL_DSN, _MARIADB_DSN
//	                           of each database that is there; the MySQL ones in the driver's form
//	SQLLOCK_TEST_STARTED       the databases that testdb started, separated by commas: a test may do to these what
//	                           it likes, stop them as well. Behind a DSN that was given, tests touch only databases
//	                           and schemas named sqllock_test_*, and no global setting.
//	SQLLOCK_TEST_POSTGRES_CONTROL, _MYSQL_CONTROL, _MARIADB_CONTROL
//	                           of each database in SQLLOCK_TEST_STARTED: a URL on 127.0.0.1. A POST to URL/stop,
//	                           /start, /restart, /kill, /pause or /resume does that to the server, the same for a
//	                           container and for a process, and answers when it is done (204) or has failed (500,
//	                           with the reason). The address in the DSN stays. Package control beside this one is
//	                           the client.
//
// SIGINT and SIGTERM are handed to COMMAND. The exit code is COMMAND's; 1 where a database that is required is
// missing, 2 for a wrong call, 127 where COMMAND cannot be started. The last lines on standard error name each
// database: how it was had and its version, or why it could not be tested. No password is ever printed.
package main
