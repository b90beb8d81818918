package main

import "os"

func main() {
	if len(os.Args) > 1 && os.Args[1] == guardianArg {
		os.Exit(guard(os.Args[2:]))
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}
