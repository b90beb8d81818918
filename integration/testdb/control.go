package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
)

// A switchboard lets the command do things to the servers that testdb started, over HTTP on 127.0.0.1: the same five
// verbs for a container and for a process. The path holds a secret, so that no other user of the machine can.
type switchboard struct {
	listener net.Listener
	http     *http.Server
	urls     map[string]string
}

func newSwitchboard(servers map[string]*server) (*switchboard, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("no port for the control of servers: %w", err)
	}
	board := &switchboard{listener: listener, urls: map[string]string{}}
	mux := http.NewServeMux()
	secret := newPassword()
	for name, s := range servers {
		if s.control == nil {
			continue
		}
		path := "/" + secret + "/" + name
		board.urls[name] = "http://" + listener.Addr().String() + path
		mux.HandleFunc("POST "+path+"/{verb}", func(w http.ResponseWriter, r *http.Request) {
			// Not the request's ctx: a test that gives up halfway would leave a server neither up nor down.
			if err := act(context.WithoutCancel(r.Context()), s.control, r.PathValue("verb")); err != nil {
				http.Error(w, strings.TrimSpace(err.Error()), http.StatusInternalServerError)
				return
			}
			w.WriteHeader(http.StatusNoContent)
		})
	}
	board.http = &http.Server{Handler: mux}
	go board.http.Serve(listener)
	return board, nil
}

func act(ctx context.Context, c controller, verb string) error {
	switch verb {
	case "start":
		return c.Start(ctx)
	case "stop":
		return c.Stop(ctx)
	case "restart":
		if err := c.Stop(ctx); err != nil {
			return err
		}
		return c.Start(ctx)
	case "kill":
		return c.Kill(ctx)
	case "pause":
		return c.Pause(ctx)
	case "resume":
		return c.Resume(ctx)
	}
	return fmt.Errorf("there is no verb %q: start, stop, restart, kill, pause, resume", verb)
}

func (b *switchboard) close() { b.http.Close() }
