package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/sqlnative/locks/internal/dsn"
)

// workerEnv makes of this program one process of the race. What it has to do comes
// through its standard input, where no password can be seen by others.
const workerEnv = "REDPACKET_WORKER"

// task is what a process is told; a second message, "go", starts it.
type task struct {
	Config   config
	Strategy string
	Process  int
}

// result is what a process answers: first that it is ready, then what it did.
type result struct {
	Ready bool     `json:"ready,omitempty"`
	Took  attempts `json:"took"`
	Error string   `json:"error,omitempty"`
}

// work is one process of the race.
func work(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	in, out := json.NewDecoder(stdin), json.NewEncoder(stdout)
	var t task
	if err := in.Decode(&t); err != nil {
		return err
	}
	took, err := func() (attempts, error) {
		d, err := dsn.Parse(t.Config.DSN)
		if err != nil {
			return attempts{}, err
		}
		db, closePool, err := d.Open(ctx)
		if err != nil {
			return attempts{}, d.Scrubber().Error(err)
		}
		defer func() { _ = closePool() }()
		var start string
		if err := errors.Join(out.Encode(result{Ready: true}), in.Decode(&start)); err != nil {
			return attempts{}, err
		}
		took, err := goroutines(ctx, db, t.Config, t.Strategy, t.Process)
		return took, d.Scrubber().Error(err)
	}()
	if err != nil {
		return out.Encode(result{Error: err.Error()})
	}
	return out.Encode(result{Took: took})
}

// worker is a process of the race, as its parent sees it.
type worker struct {
	cmd *exec.Cmd
	in  *json.Encoder
	out *json.Decoder
	end io.Closer
}

// processes runs one strategy in several processes, which start together when all
// have connected.
func processes(ctx context.Context, c config, name string) (took attempts, elapsed time.Duration, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var workers []*worker
	defer func() {
		cancel() // ends those that have not ended
		for _, w := range workers {
			_ = w.end.Close()
			_ = w.cmd.Wait()
		}
	}()
	for p := range c.Processes {
		w, err := startWorker(ctx, task{c, name, p})
		if err != nil {
			return attempts{}, 0, err
		}
		workers = append(workers, w)
	}
	for _, w := range workers {
		if r, err := w.answer(); err != nil || !r.Ready {
			return attempts{}, 0, errors.Join(errors.New("a process did not become ready"), err)
		}
	}
	begun := time.Now()
	for _, w := range workers {
		if err := w.in.Encode("go"); err != nil {
			return attempts{}, 0, err
		}
	}
	results := make([]result, len(workers))
	errs := make([]error, len(workers))
	var wg sync.WaitGroup
	for i, w := range workers {
		wg.Go(func() { results[i], errs[i] = w.answer() })
	}
	wg.Wait()
	elapsed = time.Since(begun)
	for _, r := range results {
		took.add(r.Took)
	}
	return took, elapsed, errors.Join(errs...)
}

func startWorker(ctx context.Context, t task) (*worker, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, exe)
	cmd.Env = append(os.Environ(), workerEnv+"=1")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting a process: %w", err)
	}
	w := &worker{cmd: cmd, in: json.NewEncoder(stdin), out: json.NewDecoder(stdout), end: stdin}
	return w, w.in.Encode(t)
}

// answer reads the process's next answer.
func (w *worker) answer() (r result, err error) {
	if err := w.out.Decode(&r); err != nil {
		return r, fmt.Errorf("a process ended early: %w", err)
	}
	if r.Error != "" {
		return r, errors.New(r.Error)
	}
	return r, nil
}
