package sqlitedb

// ParseVersion is parseVersion, for the tests.
var ParseVersion = parseVersion
