// Package mattn tests sqlitedb with github.com/mattn/go-sqlite3, which needs cgo.
package mattn
