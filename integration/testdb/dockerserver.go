package main

import (
	"context"
	"fmt"
	"time"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

// A dockerServer is a database in a container that testdb started.
type dockerServer struct {
	client *client.Client
	ctr    testcontainers.Container // nil where it came to nothing
	ready  func(ctx context.Context) error
}

// Start starts the container again and waits until the server answers.
func (c *dockerServer) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if _, err := c.client.ContainerStart(ctx, c.ctr.GetContainerID(), client.ContainerStartOptions{}); err != nil {
		return err
	}
	return c.ready(ctx)
}

// Stop ends the server in an orderly way, by the image's own stop signal, and by force after half a minute.
func (c *dockerServer) Stop(ctx context.Context) error {
	patience := 30
	_, err := c.client.ContainerStop(ctx, c.ctr.GetContainerID(), client.ContainerStopOptions{Timeout: &patience})
	return err
}

// Kill ends all processes in the container at once, as a crash would.
func (c *dockerServer) Kill(ctx context.Context) error {
	id := c.ctr.GetContainerID()
	if _, err := c.client.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: "SIGKILL"}); err != nil {
		return err
	}
	for { // the engine answers before the processes are gone
		info, err := c.client.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
		if err != nil {
			return err
		}
		if info.Container.State == nil || !info.Container.State.Running {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Pause freezes all processes in the container; connections stay open and are silent.
func (c *dockerServer) Pause(ctx context.Context) error {
	_, err := c.client.ContainerPause(ctx, c.ctr.GetContainerID(), client.ContainerPauseOptions{})
	return err
}

// Resume lets a paused server go on.
func (c *dockerServer) Resume(ctx context.Context) error {
	_, err := c.client.ContainerUnpause(ctx, c.ctr.GetContainerID(), client.ContainerUnpauseOptions{})
	return err
}

// Remove takes the container away with its volumes, in whatever state it is.
func (c *dockerServer) Remove(ctx context.Context) error {
	if c.ctr == nil {
		return nil
	}
	_, err := c.client.ContainerRemove(ctx, c.ctr.GetContainerID(), client.ContainerRemoveOptions{RemoveVolumes: true, Force: true})
	if err != nil {
		return fmt.Errorf("the container %s may be left: docker rm -f -v %[1]s: %w", c.ctr.GetContainerID()[:12], err)
	}
	return nil
}
