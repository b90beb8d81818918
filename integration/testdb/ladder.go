package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
)

// A server is a database that is up.
type server struct {
	kind    *kind
	dsn     string
	how     string
	version string
	control controller // nil where somebody else started it
}

// A controller is what testdb can do to a server that it started.
type controller interface {
	Start(ctx context.Context) error
	Stop(ctx context.Context) error
	Kill(ctx context.Context) error
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
	Remove(ctx context.Context) error
}

// A ladder tries the ways to each database, from the first to the last.
type ladder struct {
	settings *settings
	tell     *teller

	mu      sync.Mutex
	servers map[string]*server
	misses  map[string][]string // why each way did not lead to the database
}

func newLadder(s *settings, t *teller) *ladder {
	return &ladder{settings: s, tell: t, servers: map[string]*server{}, misses: map[string][]string{}}
}

// climb brings up what can be brought up. An error means that nothing should go on: a DSN that was given is wrong, or
// ctx is done. What is up by then is in servers, for remove.
func (l *ladder) climb(ctx context.Context) error {
	if err := l.given(ctx); err != nil {
		return err
	}
	if len(l.missing()) > 0 {
		l.docker(ctx)
	}
	if len(l.missing()) > 0 {
		l.native(ctx, false)
	}
	if len(l.missing()) > 0 {
		l.native(ctx, true)
	}
	return ctx.Err()
}

// given takes the DSNs that stand in the environment.
func (l *ladder) given(ctx context.Context) error {
	var given []*kind
	for _, k := range l.settings.kinds {
		if lookup(l.settings.env, k.env("DSN")) != "" {
			given = append(given, k)
		}
	}
	return each(given, func(k *kind) (err error) {
		name := k.env("DSN")
		defer func() {
			if err != nil {
				l.miss(k, name+" cannot be used")
			}
		}()
		raw := lookup(l.settings.env, name)
		l.tell.keep(secretsOf(raw)...)
		dsn, err := k.normalize(raw)
		if err != nil {
			return fmt.Errorf("%s is %w", name, err)
		}
		version, err := k.probe(ctx, dsn)
		if err != nil {
			return fmt.Errorf("%s=%s cannot be used: %w; mend it, or unset it and testdb looks for a server itself", name, redact(raw), err)
		}
		l.add(&server{kind: k, dsn: dsn, how: name, version: version})
		return nil
	})
}

func (l *ladder) docker(ctx context.Context) {
	if !l.settings.docker {
		l.missAll("Docker is switched off by SQLLOCK_TEST_DOCKER=0")
		return
	}
	engine, err := findEngine(ctx)
	if err != nil {
		l.tell.say("Docker cannot be used, going on without it: %v", err)
		l.missAll(fmt.Sprintf("Docker cannot be used (%v)", err))
		return
	}
	each(l.missing(), func(k *kind) error {
		s, err := engine.start(ctx, k, l.tell)
		if ctx.Err() != nil && err != nil {
			return nil // cut short: it says nothing about Docker
		}
		if err != nil {
			hint := ""
			if strings.Contains(err.Error(), "reaper") {
				hint = " (where its reaper's image cannot be had, set TESTCONTAINERS_RYUK_DISABLED=true)"
			}
			l.tell.say("%s: not through Docker, going on without it: %v%s", k.title, err, hint)
			l.miss(k, fmt.Sprintf("Docker has no container of %s (%v)", k.image, err))
			return nil
		}
		l.add(s)
		return nil
	}) // errors are told and noted above
}

// native starts servers from binaries on the machine; with apt, after installing those that were not found.
func (l *ladder) native(ctx context.Context, apt bool) {
	installer := newInstaller(l.settings.apt, l.tell)
	found := map[string]*binary{}
	var startable []*kind
	for _, k := range l.missing() { // one after the other: apt-get is alone on a machine
		if ctx.Err() != nil {
			return
		}
		b, err := k.find(ctx, searchDirs(k, os.Getenv("PATH"), "/"))
		if apt && err != nil {
			failed := installer.install(ctx, k)
			// Even so: a package can be unpacked and fail in its own set-up, which is not needed here.
			if b, err = k.find(ctx, searchDirs(k, os.Getenv("PATH"), "/")); err != nil && failed != nil {
				err = failed
			}
		} else if apt {
			continue // it is there and did not start: installing it again does not help
		}
		if err != nil {
			l.miss(k, err.Error())
			continue
		}
		found[k.name] = b
		startable = append(startable, k)
	}
	each(startable, func(k *kind) error {
		s, err := startNative(ctx, k, found[k.name], l.tell)
		if ctx.Err() != nil && err != nil {
			return nil // cut short: it says nothing about the binary
		}
		if err != nil {
			l.tell.say("%s: %s does not start: %v", k.title, found[k.name].path, err)
			l.miss(k, fmt.Sprintf("%s does not start (%v)", found[k.name].path, err))
			return nil
		}
		if apt {
			s.how += ", installed by apt-get"
		}
		l.add(s)
		return nil
	})
}

func (l *ladder) add(s *server) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.servers[s.kind.name] = s
}

func (l *ladder) miss(k *kind, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.misses[k.name] = append(l.misses[k.name], why)
}

func (l *ladder) missAll(why string) {
	for _, k := range l.missing() {
		l.miss(k, why)
	}
}

func (l *ladder) missing() []*kind {
	l.mu.Lock()
	defer l.mu.Unlock()
	var missing []*kind
	for _, k := range l.settings.kinds {
		if l.servers[k.name] == nil {
			missing = append(missing, k)
		}
	}
	return missing
}

// remove takes down everything that testdb started, all at once.
func (l *ladder) remove(ctx context.Context) error {
	return each(l.settings.kinds, func(k *kind) error {
		s := l.servers[k.name]
		if s == nil || s.control == nil {
			return nil
		}
		if err := s.control.Remove(ctx); err != nil {
			return fmt.Errorf("%s: %w", k.title, err)
		}
		return nil
	})
}

// each does the same for several databases at once and joins the errors. A panic becomes an error: in a goroutine it
// would end testdb on the spot, with servers left behind.
func each(kinds []*kind, do func(k *kind) error) error {
	errs := make([]error, len(kinds))
	var wg sync.WaitGroup
	for i, k := range kinds {
		wg.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					errs[i] = fmt.Errorf("%s: panic: %v", k.title, p)
				}
			}()
			errs[i] = do(k)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
