// Package control lets a test stop, kill, pause and restart a database server that testdb started for it.
//
//	server, ok := control.Of("postgres")
//	if !ok {
//		t.Skip("this needs a server that testdb started")
//	}
//	err := server.Restart(ctx)
//
// A server keeps its address and its data through all of it. A test that is done leaves the server running.
package control

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

// A Server is one that testdb started, as a process or as a container.
type Server struct{ url string }

// Of finds the server of a database: postgres, mysql or mariadb. It is false where the DSN in the environment was not
// made by testdb: such a server is somebody else's.
func Of(database string) (*Server, bool) {
	url := os.Getenv("SQLLOCK_TEST_" + strings.ToUpper(database) + "_CONTROL")
	return &Server{url: url}, url != ""
}

// Start starts a server that was stopped or killed, and returns when it answers.
func (s *Server) Start(ctx context.Context) error { return s.do(ctx, "start") }

// Stop ends the server in an orderly way, and does not wait for clients to leave.
func (s *Server) Stop(ctx context.Context) error { return s.do(ctx, "stop") }

// Restart is Stop and Start.
func (s *Server) Restart(ctx context.Context) error { return s.do(ctx, "restart") }

// Kill ends all the server's processes with SIGKILL, as a crash would.
func (s *Server) Kill(ctx context.Context) error { return s.do(ctx, "kill") }

// Pause freezes the server: connections stay open and are silent.
func (s *Server) Pause(ctx context.Context) error { return s.do(ctx, "pause") }

// Resume lets a paused server go on.
func (s *Server) Resume(ctx context.Context) error { return s.do(ctx, "resume") }

// do returns when the server has done it. If ctx ends first, it is done all the same, only later.
func (s *Server) do(ctx context.Context, verb string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/"+verb, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if answer.StatusCode != http.StatusNoContent {
		return fmt.Errorf("control: %s: %s: %s", verb, answer.Status, strings.TrimSpace(string(text)))
	}
	return err
}
