package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// startTimeout bounds how long a server may take to answer. Two cores under load make MySQL's first start slow.
const startTimeout = 2 * time.Minute

// startNative makes a fresh server from a binary, in a temporary folder, on a free port. A port can be taken by
// somebody else between the moment it was free and the moment the server binds it, so a server that ends early gets
// two more.
func startNative(ctx context.Context, k *kind, b *binary, t *teller) (s *server, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	h, err := newHome(ctx, k, b.path)
	if err != nil {
		return nil, err
	}
	password := newPassword()
	t.keep(password)
	p := &process{dir: h.dir, owner: h.user}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Remove(context.WithoutCancel(ctx)))
		}
	}()

	prepare, arguments := preparePostgres, postgresArguments
	p.gentle, p.hasty = syscall.SIGINT, syscall.SIGQUIT // a fast shutdown, an immediate one
	if k.name != "postgres" {
		prepare, arguments = prepareMySQL, mysqlArguments
		p.gentle, p.hasty = syscall.SIGTERM, syscall.SIGKILL
	}
	firstOnly, err := prepare(ctx, k, b, h, password)
	if err != nil {
		return nil, err
	}

	s = &server{kind: k, how: "started from " + b.path, control: p}
	for try := 0; ; try++ {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		s.dsn = k.dsn("127.0.0.1", port, password)
		p.ready = func(ctx context.Context, dead <-chan struct{}) error {
			version, err := k.await(ctx, s.dsn, dead)
			s.version = version
			return err
		}
		argv := append([]string{b.path}, arguments(k, h, port)...)
		p.argv = slices.Concat(argv, firstOnly)
		err = p.launch(ctx)
		p.argv = argv
		if err == nil {
			return s, os.RemoveAll(filepath.Join(h.dir, secretFile))
		}
		if !errors.Is(err, errDead) || try == 2 {
			return nil, err
		}
	}
}

// secretFile is the file in a server's folder that tells it its password, until it knows it.
const secretFile = "secret"
