// Package locktable tests the lock table against what happens to programs: servers that are gone, silent or slow,
// answers that never come, pools that are busy, other drivers, poolers, several processes, and databases that
// forget.
package locktable
