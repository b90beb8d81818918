package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
)

// The ports that servers get: no standard ones, and below the range from which systems take the ports of outgoing
// connections (from 32768 on Linux, from 49152 on macOS). There, a client that tries to reach a stopped server would
// sooner or later be given the server's own port, talk to itself, and keep the server from coming back.
const (
	firstPort = 20000
	lastPort  = 29999
)

// freePort finds a port of 127.0.0.1 that nobody uses at the moment.
func freePort() (string, error) {
	var err error
	for range 50 {
		port := strconv.Itoa(firstPort + rand.IntN(lastPort-firstPort+1))
		var l net.Listener
		if l, err = net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			return port, l.Close()
		}
	}
	return "", fmt.Errorf("no free port on 127.0.0.1 between %d and %d: %w", firstPort, lastPort, err)
}

// portTaken is whether an error says that somebody else got the port between freePort and its use.
func portTaken(err error) bool {
	text := err.Error()
	return strings.Contains(text, "port is already allocated") || strings.Contains(text, "address already in use")
}
