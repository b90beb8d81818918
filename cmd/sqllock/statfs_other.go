//go:build !linux

package main

// networkFileSystem cannot tell here.
func networkFileSystem(string) string { return "" }
