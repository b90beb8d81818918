package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/moby/moby/api/pkg/authconfig"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	tclog "github.com/testcontainers/testcontainers-go/log"
	tcmysql "github.com/testcontainers/testcontainers-go/modules/mysql"
	tcpostgres "github.com/testcontainers/testcontainers-go/modules/postgres"
	"github.com/testcontainers/testcontainers-go/wait"
)

// An engine is a Docker engine that answers.
type engine struct {
	client *testcontainers.DockerClient
	host   string // where its published ports are
}

// findEngine asks for Docker once, for all databases. A dead or forbidden socket answers at once; an address that
// swallows everything is given five seconds. testcontainers-go panics where it finds no socket at all.
func findEngine(ctx context.Context) (*engine, error) {
	tclog.SetDefault(tclog.NewNoopLogger())
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Second, errors.New("no answer within 5 s"))
	defer cancel()
	type answer struct {
		engine *engine
		err    error
	}
	answers := make(chan answer, 1)
	go func() {
		var a answer
		defer func() {
			if p := recover(); p != nil {
				a = answer{err: fmt.Errorf("%v", p)}
			}
			answers <- a
		}()
		a.engine, a.err = connectEngine(ctx)
	}()
	select {
	case a := <-answers:
		return a.engine, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// connectEngine holds on to DOCKER_HOST: testcontainers-go would pass over one that is dead and take whatever engine
// else it finds, which is not the one that was meant.
func connectEngine(ctx context.Context) (*engine, error) {
	if host := os.Getenv("DOCKER_HOST"); host != "" {
		meant, err := client.New(client.FromEnv)
		if err != nil {
			return nil, fmt.Errorf("DOCKER_HOST: %w", err)
		}
		defer meant.Close()
		if _, err := meant.Ping(ctx, client.PingOptions{}); err != nil {
			return nil, err
		}
	}
	provider, err := testcontainers.NewDockerProvider()
	if err != nil {
		return nil, err
	}
	defer provider.Close()
	if err := provider.Health(ctx); err != nil {
		return nil, err
	}
	host, err := provider.DaemonHost(ctx)
	if err != nil {
		return nil, err
	}
	cli, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		return nil, err
	}
	return &engine{client: cli, host: host}, nil
}

// pull gets an image that is not there yet. It tries once: testcontainers-go would go on for minutes on a machine
// that has no way out.
func (e *engine) pull(ctx context.Context, image string, t *teller) error {
	if _, err := e.client.ImageInspect(ctx, image); err == nil {
		return nil
	}
	t.say("pulling the image %s", image)
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Minute, errors.New("not there after 5 minutes"))
	defer cancel()
	var options client.ImagePullOptions
	if _, auth, err := testcontainers.DockerImageAuth(ctx, image); err == nil {
		options.RegistryAuth, _ = authconfig.Encode(auth) // public images need none
	}
	progress, err := e.client.ImagePull(ctx, image, options)
	if err != nil {
		return fmt.Errorf("cannot pull %s: %w", image, err)
	}
	defer progress.Close()
	if err := progress.Wait(ctx); err != nil {
		return fmt.Errorf("cannot pull %s: %w", image, err)
	}
	return nil
}

// start runs a database in a container, with another port if somebody took the first one meanwhile.
func (e *engine) start(ctx context.Context, k *kind, t *teller) (*server, error) {
	if err := e.pull(ctx, k.image, t); err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		s, err := e.startOnce(ctx, k, t)
		if err == nil || !portTaken(err) || try == 2 {
			return s, err
		}
	}
}

// startOnce makes the container and waits until the server in it answers. Creating it is not interrupted, so that there is no container that nobody
// knows of; everything before and after is.
func (e *engine) startOnce(ctx context.Context, k *kind, t *teller) (s *server, err error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	password := newPassword()
	t.keep(password)
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	create, cancelCreate := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancelCreate()
	ctr, err := e.create(create, k, port, password)
	c := &dockerServer{client: e.client.Client, ctr: ctr}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Remove(context.WithoutCancel(ctx)))
		}
	}()
	if err != nil {
		return nil, err
	}
	if err := ctr.Start(ctx); err != nil {
		return nil, err
	}
	s = &server{kind: k, how: "Docker, " + k.image, control: c, dsn: k.dsn(e.host, port, password)}
	c.ready = func(ctx context.Context) error {
		version, err := k.await(ctx, s.dsn, nil)
		s.version = version
		return err
	}
	return s, c.ready(ctx)
}

// create makes the container, not yet running. The port on the host is fixed, not left to Docker, because Docker gives
// a container another one when it is started again, and a test that restarts a server needs its DSN to stay true.
func (e *engine) create(ctx context.Context, k *kind, port, password string) (testcontainers.Container, error) {
	inside := map[string]string{"postgres": "5432/tcp"}[k.name]
	if inside == "" {
		inside = "3306/tcp"
	}
	binding := network.PortBinding{HostPort: port}
	if e.host == "localhost" || e.host == "127.0.0.1" {
		binding.HostIP = netip.MustParseAddr("127.0.0.1") // the engine is here: nobody else needs to reach it
	}
	options := []testcontainers.ContainerCustomizer{
		testcontainers.WithNoStart(),
		testcontainers.WithHostConfigModifier(func(c *container.HostConfig) {
			c.PortBindings = network.PortMap{network.MustParsePort(inside): {binding}}
		}),
	}
	// Nothing but the number of connections differs from the servers' defaults, and the price of a login (cheapLogins); the
	// module for PostgreSQL would switch fsync off, and benchmarks would measure that.
	switch k.name {
	case "postgres":
		c, err := tcpostgres.Run(ctx, k.image, append(options,
			tcpostgres.WithUsername("postgres"), tcpostgres.WithPassword(password), tcpostgres.WithDatabase("postgres"),
			testcontainers.WithCmd("postgres", "-c", "max_connections=200"),
			tcpostgres.BasicWaitStrategies())...)
		if c == nil {
			return nil, err
		}
		return c.Container, err
	case "mysql":
		c, err := tcmysql.Run(ctx, k.image, append(options,
			tcmysql.WithUsername("root"), tcmysql.WithPassword(password), tcmysql.WithDatabase("test"),
			testcontainers.WithCmd("mysqld", "--max-connections=300", maxErrors))...)
		if c == nil {
			return nil, err
		}
		return c.Container, err
	default: // there is no module of this version for MariaDB
		c, err := testcontainers.Run(ctx, k.image, append(options,
			testcontainers.WithExposedPorts(inside),
			testcontainers.WithEnv(map[string]string{"MARIADB_ROOT_PASSWORD": password, "MARIADB_DATABASE": "test"}),
			testcontainers.WithCmd("mariadbd", "--max-connections=300", maxErrors),
			testcontainers.WithWaitStrategy(wait.ForLog("port: 3306  mariadb.org binary distribution").WithStartupTimeout(startTimeout)))...)
		if c == nil {
			return nil, err
		}
		return c, err
	}
}
