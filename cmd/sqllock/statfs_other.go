//go:build !linux

package main

// networkFileSystem cannot tell here.
func networkFileSystem(string) string { return "" }

func userSpace(string) bool { return false }

func fileSystemName(string) string { return "not asked for" }
