package pgdb

// Accept is accept, for the tests.
var Accept = accept
