// Package advisory tests advisory locks against what happens to programs: servers that are gone, silent or restarted,
// and poolers in between.
package advisory
