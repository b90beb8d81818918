package mysqldb

// What the tests see of the package.
var (
	Accept       = accept
	ParseVersion = parseVersion
	Inline       = inline
	Begin        = begin
)
