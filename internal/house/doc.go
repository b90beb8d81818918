// Package house keeps the arrows between this module's folders: its test reads the imports of every Go file and
// compares them with a table of who may use what.
package house
