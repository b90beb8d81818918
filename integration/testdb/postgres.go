package main

import "context"

// preparePostgres makes a cluster. It is not synced to disk: it lives for one test run. What the server does later is
// left at its defaults, since benchmarks measure it.
func preparePostgres(ctx context.Context, _ *kind, b *binary, h *home, password string) ([]string, error) {
	initdb, err := b.tool("initdb")
	if err != nil {
		return nil, err
	}
	secret, err := h.write(secretFile, password+"\n")
	if err != nil {
		return nil, err
	}
	return nil, h.run(ctx, initdb, "--pgdata="+h.dir+"/data", "--username=postgres", "--pwfile="+secret,
		"--auth=scram-sha-256", "--encoding=UTF8", "--no-locale", "--no-sync")
}

// postgresArguments keeps the server off the standard port and off the standard socket folder.
func postgresArguments(_ *kind, h *home, port string) []string {
	return []string{
		"-D", h.dir + "/data", "-p", port,
		"-c", "listen_addresses=127.0.0.1",
		"-c", "unix_socket_directories=",
		"-c", "max_connections=200",
	}
}
